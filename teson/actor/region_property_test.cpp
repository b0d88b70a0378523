#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "teson/actor/region.h"
#include "teson/net/codec.h"

namespace teson::actor {
namespace {

using Ranks = std::vector<std::size_t>;

/// A region written out: the base rank of every element.
struct Model {
  std::vector<Dimension> dimensions;
  Ranks ranks;
};

/// What an operation gave, and what it should have: nothing where it should be refused.
struct Outcome {
  Result<Region> region;
  std::optional<Model> expected;
};

/// The coordinates of all elements in row-major order, by counting.
std::vector<Ranks> all_coordinates(const std::vector<Dimension>& dimensions) {
  std::vector<Ranks> all{{}};
  for (const auto& dimension : dimensions) {
    std::vector<Ranks> longer;
    for (const auto& outer : all) {
      for (std::size_t i = 0; i < dimension.size; ++i) {
        longer.push_back(outer);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

template <typename Keep>
Ranks ranks_where(const Model& model, std::size_t dimension, const Keep& keep) {
  const auto coordinates = all_coordinates(model.dimensions);
  Ranks kept;
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    if (keep(coordinates[i][dimension])) kept.push_back(model.ranks[i]);
  }
  return kept;
}

bool names_are_good(const std::vector<Dimension>& dimensions) {
  std::vector<std::string> names;
  for (const auto& dimension : dimensions)
    names.push_back(dimension.name);
  std::sort(names.begin(), names.end());
  return std::find(names.begin(), names.end(), "") == names.end() &&
         std::adjacent_find(names.begin(), names.end()) == names.end();
}

/// Even in the first, small cases from the whole range.
std::uint64_t between(std::uint64_t first, std::uint64_t last) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(first, last + 1));
}

/// Mostly between the two, sometimes anything.
std::uint64_t mostly_between(std::uint64_t first, std::uint64_t last) {
  switch (between(0, 30)) {
    case 0:
      return 0;
    case 1:
      return *rc::gen::arbitrary<std::uint64_t>();
    case 2:
      return std::numeric_limits<std::uint64_t>::max();
    default:
      return between(first, last);
  }
}

/// One of a few, so that some are taken; seldom none.
std::string any_name() {
  const std::uint64_t number = between(0, 15);
  return number == 0 ? std::string() : "n" + std::to_string(number);
}

Outcome any_at(const Region& region, const Model& model, std::size_t place) {
  const auto& [name, size] = model.dimensions[place];
  const std::uint64_t index = mostly_between(0, size);
  Outcome outcome{region.at(name, index), {}};
  if (index >= size) return outcome;
  outcome.expected =
      Model{model.dimensions, ranks_where(model, place, [&](std::size_t i) { return i == index; })};
  outcome.expected->dimensions.erase(outcome.expected->dimensions.begin() +
                                     static_cast<std::ptrdiff_t>(place));
  return outcome;
}

Outcome any_slice(const Region& region, const Model& model, std::size_t place) {
  const auto& [name, size] = model.dimensions[place];
  const std::uint64_t begin = mostly_between(0, size / 2);
  const std::uint64_t end = mostly_between(size / 2 + 1, size + (between(0, 5) == 0 ? 1 : 0));
  const std::uint64_t step = mostly_between(1, 3);
  Outcome outcome{region.slice(name, begin, end, step), {}};
  if (step == 0 || begin >= end || end > size) return outcome;
  const auto keep = [&](std::size_t i) { return i >= begin && i < end && (i - begin) % step == 0; };
  outcome.expected = Model{model.dimensions, ranks_where(model, place, keep)};
  std::uint64_t left = 0;
  for (std::uint64_t i = 0; i < size; ++i)
    left += keep(i) ? 1 : 0;
  outcome.expected->dimensions[place].size = left;
  return outcome;
}

Outcome any_split(const Region& region, const Model& model, std::size_t place) {
  const auto& [name, size] = model.dimensions[place];
  std::vector<Dimension> parts;
  // Mostly divisors of what is left, the last one taking all of it; 0 leaves the size out.
  std::uint64_t rest = size;
  const std::uint64_t count = mostly_between(2, 3) % 4;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t part = i + 1 == count ? rest : between(1, rest);
    if (rest % part != 0) part = 1;
    rest /= part;
    const std::uint64_t kind = between(0, 15);
    parts.push_back({any_name(), kind == 0 ? 0 : kind == 1 ? between(0, size + 1) : part});
  }
  Outcome outcome{region.split(name, parts), {}};

  const auto open = std::find_if(parts.begin(), parts.end(),
                                 [](const Dimension& part) { return part.size == 0; });
  if (open != parts.end()) {
    // The size that is right, if one is.
    for (std::uint64_t wanted = 1; wanted <= size; ++wanted) {
      std::uint64_t product = 1;
      for (auto part = parts.begin(); part != parts.end(); ++part)
        product *= part == open ? wanted : part->size;
      if (product == size) open->size = wanted;
      if (product == size) break;
    }
  }
  std::uint64_t product = 1;
  for (const auto& part : parts)
    product *= part.size;
  Model split{model.dimensions, model.ranks};
  split.dimensions.erase(split.dimensions.begin() + static_cast<std::ptrdiff_t>(place));
  split.dimensions.insert(split.dimensions.begin() + static_cast<std::ptrdiff_t>(place),
                          parts.begin(), parts.end());
  if (!parts.empty() && product == size && names_are_good(split.dimensions))
    outcome.expected = std::move(split);
  return outcome;
}

Outcome any_flatten(const Region& region, const Model& model) {
  const std::string name = any_name();
  Outcome outcome{region.flatten(name), {}};
  bool even = true;
  for (std::size_t i = 2; i < model.ranks.size(); ++i) {
    even = even && model.ranks[i] - model.ranks[i - 1] == model.ranks[1] - model.ranks[0];
  }
  if (even && !name.empty()) outcome.expected = Model{{{name, model.ranks.size()}}, model.ranks};
  return outcome;
}

Outcome any_rename(const Region& region, const Model& model, std::size_t place) {
  const std::string name = any_name();
  Outcome outcome{region.rename(model.dimensions[place].name, name), {}};
  Model renamed = model;
  renamed.dimensions[place].name = name;
  if (names_are_good(renamed.dimensions)) outcome.expected = std::move(renamed);
  return outcome;
}

Outcome any_operation(const Region& region, const Model& model) {
  if (model.dimensions.empty()) return any_flatten(region, model);
  const std::size_t place = between(0, model.dimensions.size() - 1);
  switch (*rc::gen::weightedElement<int>({{1, 0}, {6, 1}, {6, 2}, {2, 3}, {2, 4}})) {
    case 0:
      return any_at(region, model, place);
    case 1:
      return any_slice(region, model, place);
    case 2:
      return any_split(region, model, place);
    case 3:
      return any_flatten(region, model);
    default:
      return any_rename(region, model, place);
  }
}

/// The layout as read off the written-out region: how far apart neighbours lie.
RegionLayout layout_of(const Model& model) {
  RegionLayout layout{model.ranks.front(), {}};
  const auto coordinates = all_coordinates(model.dimensions);
  for (std::size_t place = 0; place < model.dimensions.size(); ++place) {
    Ranks neighbour(model.dimensions.size(), 0);
    neighbour[place] = 1;
    const auto found = std::find(coordinates.begin(), coordinates.end(), neighbour);
    const std::uint64_t stride =
        found == coordinates.end()
            ? 0
            : model.ranks[static_cast<std::size_t>(found - coordinates.begin())] - model.ranks[0];
    layout.dimensions.push_back(
        {model.dimensions[place].name, model.dimensions[place].size, stride});
  }
  return layout;
}

void expect_same(const Region& region, const Model& model, std::size_t ranks_of_mesh) {
  RC_ASSERT(region.shape().dimensions == model.dimensions);
  RC_ASSERT(region.ranks() == model.ranks.size());
  RC_ASSERT(region.ranks_list() == model.ranks);
  const auto coordinates = all_coordinates(model.dimensions);
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    RC_ASSERT(region.rank_at(i) == model.ranks[i]);
    RC_ASSERT(region.coordinates(i) == coordinates[i]);
    RC_ASSERT(region.index(coordinates[i]).value() == i);
    for (std::size_t place = 0; place < model.dimensions.size(); ++place) {
      RC_ASSERT(region.coordinate(i, model.dimensions[place].name).value() ==
                coordinates[i][place]);
    }
  }
  std::vector<std::optional<std::size_t>> elements(ranks_of_mesh + 2);
  for (std::size_t i = 0; i < model.ranks.size(); ++i)
    elements[model.ranks[i]] = i;
  for (std::size_t rank = 0; rank < elements.size(); ++rank) {
    RC_ASSERT(region.index_of(rank) == elements[rank]);
    RC_ASSERT(region.contains(rank) == elements[rank].has_value());
  }
  RC_ASSERT(region.layout() == layout_of(model));
  RC_ASSERT(Region::make(net::decode<RegionLayout>(net::encode(region.layout())).value()).value() ==
            region);
}

RC_GTEST_PROP(Region, chains_of_operations_give_what_a_written_out_array_gives, ()) {
  Model model;
  const std::uint64_t count = between(1, 3);
  for (std::uint64_t i = 0; i < count; ++i) {
    model.dimensions.push_back({"n" + std::to_string(i + 1), between(1, 10)});
  }
  const std::size_t ranks_of_mesh = all_coordinates(model.dimensions).size();
  for (std::size_t rank = 0; rank < ranks_of_mesh; ++rank)
    model.ranks.push_back(rank);
  Region region(Shape(model.dimensions));
  expect_same(region, model, ranks_of_mesh);

  const std::uint64_t operations = between(1, 16);
  for (std::uint64_t i = 0; i < operations; ++i) {
    auto outcome = any_operation(region, model);
    RC_ASSERT(outcome.region.has_value() == outcome.expected.has_value());
    if (!outcome.region) {
      RC_ASSERT(outcome.region.error().kind == ErrorKind::invalid);
      continue;
    }
    region = std::move(*outcome.region);
    model = std::move(*outcome.expected);
    expect_same(region, model, ranks_of_mesh);
  }
}

RC_GTEST_PROP(Region, any_layout_is_refused_or_numbers_its_ranks_consistently, ()) {
  RegionLayout layout;
  const std::uint64_t count = between(0, 4);
  // Mostly nested, from the innermost out, else none would be accepted; and then up to any number.
  std::uint64_t stride = 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    stride += mostly_between(0, 3);
    layout.dimensions.insert(layout.dimensions.begin(),
                             {"d" + std::to_string(i), mostly_between(1, 9), stride});
    stride *= layout.dimensions.front().size;
  }
  layout.offset = mostly_between(0, std::uint64_t{1} << 32);
  const auto region = Region::make(layout);
  RC_CLASSIFY(region.has_value(), "accepted");
  if (!region) {
    RC_ASSERT(region.error().kind == ErrorKind::invalid);
    return;
  }
  const std::size_t last = region->ranks() - 1;
  RC_ASSERT(region->rank_at(0) == layout.offset);
  RC_ASSERT(region->rank_at(last) < ranks_max);
  for (const std::size_t element : {std::size_t{0}, last, between(0, last)}) {
    RC_ASSERT(region->index_of(region->rank_at(element)) == element);
    RC_ASSERT(region->index(region->coordinates(element)).value() == element);
    if (element > 0) RC_ASSERT(region->rank_at(element - 1) < region->rank_at(element));
  }
  const std::uint64_t rank = mostly_between(0, region->rank_at(last));
  if (const auto element = region->index_of(rank)) RC_ASSERT(region->rank_at(*element) == rank);
}

}  // namespace
}  // namespace teson::actor
