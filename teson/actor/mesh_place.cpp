#include "teson/actor/mesh_place.h"

#include "teson/actor/handler_frame.h"
#include "teson/base/check.h"

namespace teson::actor {

MeshPlace message_context() {
  const detail::HandlerFrame* frame = detail::HandlerFrame::current();
  TESON_CHECK(frame != nullptr && frame->handling() && "message_context() is for handlers");
  return frame->message_place();
}

}  // namespace teson::actor
