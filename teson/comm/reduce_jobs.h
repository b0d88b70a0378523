#pragma once

#include <cstddef>
#include <span>

#include "teson/base/error.h"
#include "teson/comm/communicator.h"
#include "teson/comm/tiled_reduce.h"

namespace teson::comm {

/// Tiles of all_reduce and reduce_scatter, in floats (1 MiB).
inline constexpr std::size_t reduce_tile_elements = std::size_t{1} << 18;

/// The jobs behind the public reductions. Pure: they check what callers say, and lay out tiles,
/// owners and terms.
ReduceJob all_reduce_job(int rank, int size, std::span<float> data);
Result<ReduceJob> reduce_scatter_job(int rank, int size, std::span<const float> in,
                                     std::span<float> out);
/// `invalid`, naming the field, for descriptions that fit neither the group nor themselves.
Result<ReduceJob> reduce_parts_job(int rank, int size, ReduceParts parts);

}  // namespace teson::comm
