#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "teson/base/error.h"

namespace teson::actor {

struct Dimension {
  std::string name;
  std::uint64_t size = 0;
  bool operator==(const Dimension&) const = default;
};

/// A mesh has fewer ranks than 2^32, so that products of sizes and strides fit into 64 bits.
inline constexpr std::uint64_t ranks_max = (std::uint64_t{1} << 32) - 1;
inline constexpr std::size_t dimensions_max = 32;

/// The named dimensions of a mesh, outermost first: `Shape{{"replica", 4}, {"shard", 2}}` has 8
/// ranks, rank 5 is replica 2, shard 1. A plain value: dense and row-major. For a part of a mesh,
/// or another view of it, see Region.
struct Shape {
  std::vector<Dimension> dimensions;

  Shape() = default;
  Shape(std::initializer_list<Dimension> list) : dimensions(list) {}
  explicit Shape(std::vector<Dimension> list) : dimensions(std::move(list)) {}

  /// A shape from sizes that the program did not choose itself. Errors as of validate().
  static Result<Shape> make(std::vector<Dimension> list);
  /// `invalid`, saying what is wrong, unless there are at most dimensions_max dimensions, each with
  /// a name of its own and a size of at least 1, and at most ranks_max ranks. The functions below
  /// are for shapes that pass.
  Result<void> validate() const;

  /// The product of the sizes; 1 without dimensions.
  std::size_t ranks() const;
  /// Where a rank lies, one number a dimension. rank < ranks().
  std::vector<std::size_t> coordinates(std::size_t rank) const;
  /// Where it lies along one dimension. `invalid`, naming those there are, if there is none of that
  /// name.
  Result<std::size_t> coordinate(std::size_t rank, std::string_view dimension) const;
  /// The ranks whose coordinate along `dimension` is `index`, in order.
  Result<std::vector<std::size_t>> slice(std::string_view dimension, std::size_t index) const;
  /// "replica=4, shard=2"; "no dimensions" where there are none.
  std::string describe() const;

  bool operator==(const Shape&) const = default;
};

}  // namespace teson::actor
