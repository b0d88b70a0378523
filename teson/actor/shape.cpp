#include "teson/actor/shape.h"

#include <fmt/format.h>

#include "teson/base/check.h"

namespace teson::actor {

std::size_t Shape::ranks() const {
  std::size_t product = 1;
  for (const auto& dimension : dimensions) product *= static_cast<std::size_t>(dimension.size);
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
  return fail(ErrorKind::invalid, fmt::format("no dimension '{}' in the mesh ({})", dimension, describe()));
}

Result<std::vector<std::size_t>> Shape::slice(std::string_view dimension, std::size_t index) const {
  std::vector<std::size_t> found;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    TESON_TRY(const std::size_t at, coordinate(rank, dimension));
    if (at == index) found.push_back(rank);
  }
  if (found.empty()) {
    return fail(ErrorKind::invalid, fmt::format("index {} is outside dimension '{}' of the mesh ({})", index, dimension, describe()));
  }
  return found;
}

std::string Shape::describe() const {
  std::string text;
  for (const auto& dimension : dimensions) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", dimension.name, dimension.size);
  }
  return text;
}

}  // namespace teson::actor
