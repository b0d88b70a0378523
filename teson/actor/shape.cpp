#include "teson/actor/shape.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"

namespace teson::actor {

Result<Shape> Shape::make(std::vector<Dimension> list) {
  Shape shape(std::move(list));
  TESON_TRY_VOID(shape.validate());
  return shape;
}

Result<void> Shape::validate() const {
  if (dimensions.size() > dimensions_max) {
    return fail(ErrorKind::invalid, fmt::format("{} dimensions in a mesh, at most {} are allowed",
                                                dimensions.size(), dimensions_max));
  }
  std::uint64_t product = 1;
  for (auto dimension = dimensions.begin(); dimension != dimensions.end(); ++dimension) {
    const auto refuse = [&](std::string_view why) {
      return fail(ErrorKind::invalid, fmt::format("dimension '{}' of the mesh ({}) {}",
                                                  dimension->name, describe(), why));
    };
    const auto is_namesake = [&](const Dimension& other) { return other.name == dimension->name; };
    if (dimension->name.empty()) return refuse("has no name; each needs one");
    if (std::any_of(dimensions.begin(), dimension, is_namesake)) {
      return refuse("is there twice; names must differ");
    }
    if (dimension->size == 0) return refuse("has size 0; it must be at least 1");
    if (dimension->size > ranks_max / product) {
      return refuse(fmt::format("makes more than {} ranks", ranks_max));
    }
    product *= dimension->size;
  }
  return {};
}

std::size_t Shape::ranks() const {
  std::size_t product = 1;
  for (const auto& dimension : dimensions)
    product *= static_cast<std::size_t>(dimension.size);
  return product;
}

std::vector<std::size_t> Shape::coordinates(std::size_t rank) const {
  TESON_CHECK(rank < ranks(), rank, ranks());
  std::vector<std::size_t> at(dimensions.size());
  for (std::size_t i = dimensions.size(); i-- > 0;) {
    at[i] = rank % static_cast<std::size_t>(dimensions[i].size);
    rank /= static_cast<std::size_t>(dimensions[i].size);
  }
  return at;
}

Result<std::size_t> Shape::coordinate(std::size_t rank, std::string_view dimension) const {
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i].name == dimension) return coordinates(rank)[i];
  }
  return fail(ErrorKind::invalid,
              fmt::format("no dimension '{}' in the mesh ({})", dimension, describe()));
}

Result<std::vector<std::size_t>> Shape::slice(std::string_view dimension, std::size_t index) const {
  std::vector<std::size_t> found;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    TESON_TRY(const std::size_t at, coordinate(rank, dimension));
    if (at == index) found.push_back(rank);
  }
  if (found.empty()) {
    return fail(ErrorKind::invalid,
                fmt::format("index {} is outside dimension '{}' of the mesh ({})", index, dimension,
                            describe()));
  }
  return found;
}

std::string Shape::describe() const {
  if (dimensions.empty()) return "no dimensions";
  std::string text;
  for (const auto& dimension : dimensions) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", dimension.name, dimension.size);
  }
  return text;
}

}  // namespace teson::actor
