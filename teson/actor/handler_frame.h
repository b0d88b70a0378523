#pragma once

// What a handler on this thread is about; not for use outside actor/.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "teson/actor/endpoints.h"
#include "teson/actor/mesh_place.h"
#include "teson/actor/region.h"
#include "teson/actor/reply_path.h"
#include "teson/actor/trace_id.h"
#include "teson/base/error.h"
#include "teson/net/channel.h"

namespace teson::actor::detail {

/// A call or cast on its way to an actor of this process, or its owner's wish that it end.
struct Envelope {
  std::uint64_t from = 0;  ///< proc
  std::uint64_t call = 0;  ///< 0: a cast
  std::uint64_t actor = 0;
  MessageTrace trace;
  EndpointId endpoint;
  net::Buffer buffer;
  std::size_t slice_from = 0;  ///< in the buffer: the slice it was sent to, then the arguments
  std::size_t slice_bytes = 0;
  bool stop = false;              ///< the wish, of which there is nothing but whom to tell
  std::uint64_t awaits = 0;       ///< an announced call's number: the buffer is still on its way
  std::size_t awaited_bytes = 0;  ///< of that buffer

  std::size_t bytes() const { return awaits != 0 ? awaited_bytes : buffer.size(); }
  std::span<const std::byte> slice() const {
    return buffer.bytes().subspan(slice_from, slice_bytes);
  }
  std::span<const std::byte> arguments() const {
    return buffer.bytes().subspan(slice_from + slice_bytes);
  }
};

/// Where an actor was spawned.
struct SpawnPlace {
  Region region;         ///< all ranks that got it
  std::size_t rank = 0;  ///< of its process, as the whole mesh counts; in the region

  /// The place in a region. `invalid` if the process is not in it.
  Result<MeshPlace> in(const Region& slice) const;
};

/// The handler that runs on this thread, from its begin to its end: what its ports and
/// message_context() belong to.
class HandlerFrame {
 public:
  /// All that it is given must outlive the frame.
  HandlerFrame(const std::shared_ptr<ReplyOutlet>& outlet, const SpawnPlace& place,
               const Envelope& envelope);
  /// No handler: an actor's state goes, and the ports it has kept give this reason.
  explicit HandlerFrame(const Error& ended);
  ~HandlerFrame();
  HandlerFrame(const HandlerFrame&) = delete;
  HandlerFrame& operator=(const HandlerFrame&) = delete;

  static HandlerFrame* current();
  bool handling() const { return envelope_ != nullptr; }
  /// While handling.
  const Envelope& envelope() const { return *envelope_; }

  ReplyPath reply_path() const { return {*outlet_, envelope_->from, envelope_->call}; }
  /// As message_context() says.
  MeshPlace message_place() const;
  /// The handler let go of its port without an answer: the reply is owed by whoever ran it.
  bool port_dropped() const { return port_dropped_; }

 private:
  friend class ReplyPath;
  bool owes(const ReplyOutlet* outlet, std::uint64_t proc, std::uint64_t call) const;

  const std::shared_ptr<ReplyOutlet>* const outlet_ = nullptr;
  const SpawnPlace* const place_ = nullptr;
  const Envelope* const envelope_ = nullptr;
  const Error* const ended_ = nullptr;
  bool port_dropped_ = false;
  HandlerFrame* const outer_;
};

}  // namespace teson::actor::detail
