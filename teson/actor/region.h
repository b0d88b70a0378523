#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "teson/actor/shape.h"
#include "teson/base/error.h"

namespace teson::actor {

/// `size` steps of `stride` base ranks each.
struct RegionDimension {
  std::string name;
  std::uint64_t size = 1;
  std::uint64_t stride = 0;
  bool operator==(const RegionDimension&) const = default;
};

/// What a Region is made of, for messages: the codec can encode it. Region::make checks what came.
struct RegionLayout {
  std::uint64_t offset = 0;
  std::vector<RegionDimension> dimensions{};
  bool operator==(const RegionLayout&) const = default;
};

/// Some ranks of a mesh and how they are arranged: a first rank, and named dimensions with strides,
/// outermost first. A plain value of a few numbers, however many ranks it holds. The ranks of the
/// mesh are called base ranks; the elements of the region are numbered 0 … ranks() - 1, row by row.
///
///   const Region mesh(Shape{{"host", 4}, {"gpu", 8}});  // base ranks 0 … 31
///   mesh.at("host", 2)                                   // gpu=8: 16 … 23
///   mesh.slice("gpu", 0, 8, 4)                           // host=4, gpu=2: 0 4 8 12 16 20 24 28
///   mesh.split("host", {{"replica", 2}, {"shard"}})      // replica=2, shard=2, gpu=8
///
/// The strides are those that these operations can make: one step along a dimension passes over all
/// that the dimensions inside it span. So the elements lie in ascending order of base ranks, each
/// once, and any question about one costs a pass over the dimensions. Dimensions of size 1 have
/// stride 0: regions are equal when they arrange the same ranks in the same way.
///
/// Operations give a new region, or `invalid` naming the dimension, what there is and what was
/// asked. No number that is asked for can overflow. The algebra is that of Monarch's ndslice
/// (Slice, Region).
class Region {
 public:
  /// Base rank 0, no dimensions.
  Region() = default;
  /// All ranks of a mesh. The shape must be valid (Shape::make, Shape::validate).
  explicit Region(const Shape& shape);
  /// The region of a layout from elsewhere. `invalid` if its dimensions are no shape, if they are
  /// not nested as said above, or if a base rank would be ranks_max or more. Whether the mesh meant
  /// has such ranks is for the caller to ask: the last one is rank_at(ranks() - 1).
  static Result<Region> make(RegionLayout layout);
  const RegionLayout& layout() const { return layout_; }

  /// Those at `index` along a dimension, which goes away.
  Result<Region> at(std::string_view dimension, std::uint64_t index) const;
  /// Those at begin, begin + step, … before `end` along a dimension, which stays. At least one;
  /// `end` is at most the dimension's size.
  Result<Region> slice(std::string_view dimension, std::uint64_t begin, std::uint64_t end,
                       std::uint64_t step = 1) const;
  /// The same elements, one dimension as several, the outermost first. Their sizes multiply to that
  /// of the dimension; one may be left out (0). Its own name may be used again.
  Result<Region> split(std::string_view dimension, std::vector<Dimension> parts) const;
  /// The same elements along one dimension. `invalid` unless their ranks are evenly spaced.
  Result<Region> flatten(std::string name) const;
  Result<Region> rename(std::string_view from, std::string to) const;

  /// The names and sizes of its own dimensions.
  Shape shape() const;
  /// How many elements it has: at least 1.
  std::size_t ranks() const;
  /// The base rank of an element. element < ranks().
  std::size_t rank_at(std::size_t element) const;
  /// The element with this base rank, if it is in the region.
  std::optional<std::size_t> index_of(std::size_t rank) const;
  bool contains(std::size_t rank) const { return index_of(rank).has_value(); }
  /// Where an element lies, one number a dimension. element < ranks().
  std::vector<std::size_t> coordinates(std::size_t element) const;
  /// Where it lies along one dimension. `invalid` if there is none of that name.
  Result<std::size_t> coordinate(std::size_t element, std::string_view dimension) const;
  /// The element at these coordinates, one a dimension. `invalid` if there are too many or too few,
  /// or one is not below the size.
  Result<std::size_t> index(const std::vector<std::size_t>& coordinates) const;
  /// The base ranks of all elements, ascending.
  std::vector<std::size_t> ranks_list() const;
  /// "host=4 every 8, gpu=2 every 4, from rank 1"
  std::string describe() const;

  bool operator==(const Region&) const = default;

 private:
  /// The place of a dimension in the layout. `invalid` if there is none of that name.
  Result<std::size_t> find(std::string_view dimension) const;

  RegionLayout layout_;
};

}  // namespace teson::actor
