#pragma once

#include <cstdint>

namespace teson::actor {

/// The number that joins what follows from one another: a message sent outside any handler begins a
/// trace, those sent within a handler belong to that of the message that is handled, whichever
/// process they go to. This is the trace of the handler that runs on this thread; 0 outside one.
/// Threads that a handler starts, or hands a port to, are outside.
std::uint64_t trace_id();

namespace detail {

/// What a message carries to be recognised by. Numbers are unique in practice, not in theory: each
/// thread counts on from 64 random bits.
struct MessageTrace {
  std::uint64_t trace = 0;    ///< of what it follows from; its own number if of nothing
  std::uint64_t message = 0;  ///< its own
};
/// Of a message that this thread is about to send.
MessageTrace next_message();

}  // namespace detail
}  // namespace teson::actor
