#include "teson/actor/links.h"

#include <span>
#include <utility>

#include <fmt/format.h>

#include "teson/actor/handshake_options.h"
#include "teson/actor/remote_proc.h"
#include "teson/actor/system.h"
#include "teson/base/check.h"
#include "teson/base/hash.h"
#include "teson/base/log.h"
#include "teson/base/random.h"

namespace teson::actor::detail {

namespace {

/// Processes that may at the same time be reading why they were refused.
constexpr std::size_t refused_max = 8;

Result<void> tell(net::Channel& channel, const Result<void>& admission) {
  return channel.send(static_cast<std::uint16_t>(Kind::admission), net::encode(admission));
}

}  // namespace

std::string random_word() {
  return fmt::format("{:016x}{:016x}{:016x}", entropy64(), entropy64(), entropy64());
}

bool same_word(const std::string& one, const std::string& other) {
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  return equal_constant_time(bytes(one), bytes(other));
}

Result<net::Address> Links::listen(const ListenOptions& door, OnHost on_host) {
  if (listener_) {
    return fail(ErrorKind::invalid,
                "this System listens already, at " + listener_->address().to_string());
  }
  net::ChannelListenerOptions options;
  options.channel.handshake = handshake_options(link_job, door.secret, hello_);
  options.channel.tls = door.tls;
  options.channel.resumable = true;
  TESON_TRY(listener_, net::ChannelListener::listen(loop_, door.address, std::move(options),
                                                    [this, on_host = std::move(on_host)](
                                                        std::unique_ptr<net::Channel> channel) {
                                                      accept(std::move(channel), on_host);
                                                    }));
  std::lock_guard lock(mutex_);
  secret_ = door.secret;
  encrypted_ = door.tls != nullptr;
  const bool elsewhere = door.advertised.family() != net::Address::Family::none;
  advertised_ = elsewhere ? door.advertised : listener_->address();
  return listener_->address();
}

void Links::close() {
  listener_.reset();
  loop_.run([this] { refused_.clear(); });
}

Result<ProcTicket> Links::expect(const std::shared_ptr<RemoteProc>& proc, Welcome welcome) {
  std::lock_guard lock(mutex_);
  if (advertised_.family() == net::Address::Family::none) {
    return fail(
        ErrorKind::invalid,
        "processes that are not children attach over the network: call System::listen first");
  }
  ProcTicket ticket{.address = advertised_.to_string(),
                    .encrypted = encrypted_,
                    .secret = secret_,
                    .token = random_word(),
                    .welcome = std::move(welcome)};
  expected_[proc->id()] = {ticket.token, proc};
  return ticket;
}

void Links::forget(std::uint64_t proc) {
  std::lock_guard lock(mutex_);
  expected_.erase(proc);
}

void Links::accept(std::unique_ptr<net::Channel> channel, const OnHost& on_host) {
  auto hello = net::decode<LinkHello>(channel->peer_body());
  const std::string where = channel->peer().to_string();
  if (!hello || hello->wire != wire_hash()) {
    log_warning("actor", "{} wants to join, but was built from another version of this library",
                where);
    return;
  }
  if (hello->role == LinkRole::host) return on_host(std::move(channel), std::move(*hello));
  const auto proc = admit(*hello);
  // A connection that was given up: its end says so.
  if (hello->resumes) return proc ? proc->resume(std::move(channel)) : void();
  if (!proc) return refuse(std::move(channel), *hello);
  (void)tell(*channel, {});
  proc->adopt(std::move(channel), *hello);
}

void Links::refuse(std::unique_ptr<net::Channel> channel, const LinkHello& hello) {
  const char* why = "a ticket that is not known, was used already, or whose time is over";
  log_warning("actor", "process {} on host '{}' ({}) wants to join with {}", hello.pid, hello.host,
              channel->peer().to_string(), why);
  (void)tell(*channel, fail(ErrorKind::invalid,
                            fmt::format("the owner refuses {}: each is good for one process, and "
                                        "ProcMesh::ticket gives the rank's present one",
                                        why)));
  channel->start({});
  refused_.push_back(std::move(channel));
  if (refused_.size() > refused_max) refused_.pop_front();
}

std::shared_ptr<RemoteProc> Links::admit(const LinkHello& hello) {
  std::lock_guard lock(mutex_);
  const auto found = expected_.find(hello.proc);
  if (found == expected_.end()) return nullptr;
  Expected& expected = found->second;
  if (!same_word(hello.token, expected.token) || hello.resumes != expected.attached) return nullptr;
  expected.attached = true;
  return expected.proc.lock();
}

}  // namespace teson::actor::detail
