#pragma once

// The door of a System to the network; not for use outside actor/.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "teson/actor/proc_ticket.h"
#include "teson/actor/wire.h"
#include "teson/base/error.h"
#include "teson/base/thread.h"
#include "teson/net/address.h"
#include "teson/net/channel.h"
#include "teson/net/loop.h"

namespace teson::actor {
struct ListenOptions;
}

namespace teson::actor::detail {

class RemoteProc;

/// Where processes and host agents connect. Each is let in by the job's secret; a process also by
/// the token of its ticket, once, and is told so or why not. Threads: any, unless said otherwise.
class Links {
 public:
  /// Loop's thread.
  using OnHost = std::function<void(std::unique_ptr<net::Channel>, LinkHello)>;

  Links(net::Loop& loop, OwnerHello hello) : loop_(loop), hello_(hello) {}

  /// Once.
  Result<net::Address> listen(const ListenOptions& options, OnHost on_host);
  void close();

  /// A ticket with which one process may attach as `proc`. `invalid` if nothing listens.
  Result<ProcTicket> expect(const std::shared_ptr<RemoteProc>& proc, Welcome welcome);
  void forget(std::uint64_t proc);

 private:
  struct Expected {
    std::string token;
    std::weak_ptr<RemoteProc> proc;
    bool attached = false;  ///< and may resume its connection
  };
  void accept(std::unique_ptr<net::Channel> channel, const OnHost& on_host);
  /// Nothing if no such process is expected, or none with such a connection.
  std::shared_ptr<RemoteProc> admit(const LinkHello& hello);
  void refuse(std::unique_ptr<net::Channel> channel, const LinkHello& hello);

  net::Loop& loop_;
  const OwnerHello hello_;
  std::unique_ptr<net::ChannelListener> listener_;
  /// Loop's thread: to the last processes that were refused, while they read why.
  std::deque<std::unique_ptr<net::Channel>> refused_;
  Mutex mutex_;
  net::Address advertised_;
  std::string secret_;
  bool encrypted_ = false;
  std::unordered_map<std::uint64_t, Expected> expected_;
};

/// A secret or token that nobody can guess.
std::string random_word();
/// In a time that tells nothing of how much of it is the same.
bool same_word(const std::string& one, const std::string& other);

}  // namespace teson::actor::detail
