#include "teson/actor/trace_id.h"

#include "teson/actor/handler_frame.h"
#include "teson/base/random.h"

namespace teson::actor {

std::uint64_t trace_id() {
  const detail::HandlerFrame* frame = detail::HandlerFrame::current();
  return frame != nullptr && frame->handling() ? frame->envelope().trace.trace : 0;
}

namespace detail {

MessageTrace next_message() {
  thread_local std::uint64_t last = entropy64();
  if (++last == 0) ++last;  // that stands for none
  const std::uint64_t inherited = trace_id();
  return {.trace = inherited == 0 ? last : inherited, .message = last};
}

}  // namespace detail
}  // namespace teson::actor
