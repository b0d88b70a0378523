#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"

namespace teson::actor {

struct Dimension {
  std::string name;
  std::uint64_t size = 0;
  bool operator==(const Dimension&) const = default;
};

/// The named dimensions of a mesh, outermost first: `Shape{{"replica", 4}, {"shard", 2}}` has 8 ranks, rank 5 is replica 2, shard 1.
/// A plain value.
struct Shape {
  std::vector<Dimension> dimensions;

  Shape() = default;
  Shape(std::initializer_list<Dimension> list) : dimensions(list) {}
  explicit Shape(std::vector<Dimension> list) : dimensions(std::move(list)) {}

  /// The product of the sizes; 1 without dimensions.
  std::size_t ranks() const;
  /// Where a rank lies, one number a dimension. rank < ranks().
  std::vector<std::size_t> coordinates(std::size_t rank) const;
  /// Where it lies along one dimension. `invalid`, naming those there are, if there is none of that name.
  Result<std::size_t> coordinate(std::size_t rank, std::string_view dimension) const;
  /// The ranks whose coordinate along `dimension` is `index`, in order.
  Result<std::vector<std::size_t>> slice(std::string_view dimension, std::size_t index) const;
  /// "replica=4, shard=2"
  std::string describe() const;

  bool operator==(const Shape&) const = default;
};

}  // namespace teson::actor
