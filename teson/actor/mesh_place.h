#pragma once

#include <cstddef>
#include <string_view>

#include "teson/actor/shape.h"
#include "teson/base/error.h"

namespace teson::actor {

/// Where an actor stands in a mesh.
struct MeshPlace {
  std::size_t rank = 0;
  std::size_t size = 1;
  Shape shape;

  /// Where it lies along a dimension of the mesh. `invalid` if there is none of that name.
  Result<std::size_t> coordinate(std::string_view dimension) const {
    return shape.coordinate(rank, dimension);
  }
};

/// The place in the mesh, or the slice of one, that the message was sent to whose handler runs on
/// this thread: sent to one row of a mesh, an actor is one of that row's ranks, while the place it
/// was spawned with (ProcContext) stays what it was. For a message sent by reference, and in an
/// actor that its own process hosts, the place of the actor's spawn. Only within a handler.
MeshPlace message_context();

}  // namespace teson::actor
