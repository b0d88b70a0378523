#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/net/address.h"
#include "teson/net/loop.h"
#include "teson/quorum/lighthouse_state.h"
#include "teson/quorum/record.h"

namespace teson::quorum {

struct LighthouseOptions {
  net::Address address;  ///< where members and agents connect
  std::string job;
  std::string secret;  ///< needed unless the address is loopback or a Unix socket
  Duration heartbeat = std::chrono::milliseconds(100);
  Duration hang_floor = std::chrono::seconds(2);
  std::int32_t replicas_expected = 1;
  std::int32_t replicas_min = 1;
  std::filesystem::path record_path;  ///< the durable record; made if it is not there
  /// The record could not be written (it leads no more), or the like: the lighthouse must be
  /// restarted. On the loop's thread; do not destroy the server inside. May be empty.
  std::function<void(const Error&)> on_failed;
};

/// The lighthouse of one job: LighthouseState over net channels and a RecordStore. All of it runs
/// on `loop`, which is best its own: writing the record blocks it for one fsync. Threads: methods
/// from any.
class LighthouseServer {
 public:
  static constexpr std::size_t links_max = 4096;

  /// Opens the record, begins a term, listens. Errors: those of RecordStore::open and of listening;
  /// `invalid` if the record belongs to another job.
  static Result<std::unique_ptr<LighthouseServer>> start(net::Loop& loop,
                                                         LighthouseOptions options);
  /// Stops listening and closes all links. Not on the loop's thread.
  ~LighthouseServer();
  LighthouseServer(const LighthouseServer&) = delete;
  LighthouseServer& operator=(const LighthouseServer&) = delete;

  const net::Address& address() const;

  struct Snapshot {
    LighthouseState::Stage stage = LighthouseState::Stage::forming;
    std::optional<EpochRecord> record;
    std::vector<LighthouseState::Known> known;
  };
  Snapshot snapshot() const;

 private:
  class Impl;
  explicit LighthouseServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace teson::quorum
