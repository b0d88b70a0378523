#pragma once

#include <cstddef>
#include <span>

#include "teson/train/flat_layout.h"

namespace teson::train {

/// Sums of squares of blocks [first, first + sums.size()) of the layout, in fp64 (squares of floats
/// are exact in it). Whoever holds a block gets the same bits, with any number of threads and any
/// alignment.
void block_square_sums(const FlatLayout& layout, const float* gradients, std::size_t first,
                       std::span<double> sums);

/// Adds the blocks' sums along a balanced binary tree over their numbers.
double combine_square_sums(std::span<const double> sums);

/// Both: the sum of squares of the whole gradient. Infinite or NaN where a gradient is.
double square_sum(const FlatLayout& layout, const float* gradients);

/// What to multiply a gradient of norm `norm` by so that its norm is at most `norm_max`: min(1,
/// norm_max / norm). 1 if norm_max is 0 (no clipping) or the norm is not finite (skip such a step).
double clip_factor(double norm, double norm_max);

}  // namespace teson::train
