#include "teson/actor/region.h"

#include <span>
#include <utility>

#include <fmt/format.h>

#include "teson/base/check.h"

namespace teson::actor {
namespace {

Shape shape_of(const std::vector<RegionDimension>& dimensions) {
  std::vector<Dimension> list;
  list.reserve(dimensions.size());
  for (const auto& dimension : dimensions)
    list.push_back({dimension.name, dimension.size});
  return Shape(std::move(list));
}

/// A stride where there is something to step over.
std::uint64_t stride_for(std::uint64_t size, std::uint64_t stride) {
  return size == 1 ? 0 : stride;
}

/// From the parts of a dimension, innermost last, those of a layout.
std::vector<RegionDimension> with_strides(std::span<const Dimension> parts, std::uint64_t stride) {
  std::vector<RegionDimension> strided(parts.size());
  for (std::size_t i = parts.size(); i-- > 0;) {
    const auto& [name, size] = parts[i];
    strided[i] = {name, size, stride_for(size, stride)};
    stride *= size;
  }
  return strided;
}

std::string describe_parts(std::span<const Dimension> parts) {
  if (parts.empty()) return "no parts";
  if (parts.size() > dimensions_max) return fmt::format("{} parts", parts.size());
  std::string text;
  for (const auto& [name, size] : parts) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name,
                        size == 0 ? "?" : std::to_string(size));
  }
  return text;
}

/// Fills in the size that was left out.
Result<void> complete(std::span<Dimension> parts, std::uint64_t whole) {
  if (parts.empty()) return fail(ErrorKind::invalid, "at least one part is needed");
  Dimension* open = nullptr;
  std::uint64_t product = 1;
  for (auto& part : parts) {
    if (part.size == 0) {
      if (open != nullptr) {
        return fail(ErrorKind::invalid,
                    fmt::format("one size can be left out, not those of both '{}' and '{}'",
                                open->name, part.name));
      }
      open = &part;
      continue;
    }
    if (part.size > whole / product) {
      return fail(ErrorKind::invalid,
                  fmt::format("the sizes multiply to more than the {} there are", whole));
    }
    product *= part.size;
  }
  if (open == nullptr && product != whole) {
    return fail(ErrorKind::invalid,
                fmt::format("the sizes multiply to {}, expected {}", product, whole));
  }
  if (whole % product != 0) {
    return fail(ErrorKind::invalid,
                fmt::format("{} is not a multiple of the sizes given ({})", whole, product));
  }
  if (open != nullptr) open->size = whole / product;
  return {};
}

/// That one step along each dimension passes over all that the ones inside span, up to ranks_max.
Result<void> check_nesting(const RegionLayout& layout) {
  std::uint64_t span = 0;
  for (std::size_t i = layout.dimensions.size(); i-- > 0;) {
    const auto& [name, size, stride] = layout.dimensions[i];
    if (size == 1) continue;
    if (stride <= span) {
      return fail(ErrorKind::invalid,
                  fmt::format("dimension '{}' has stride {}, but those inside it span {} ranks",
                              name, stride, span + 1));
    }
    if (stride > ranks_max || (size - 1) * stride + span >= ranks_max) {
      return fail(ErrorKind::invalid,
                  fmt::format("dimension '{}', size {} with stride {}, reaches past rank {}", name,
                              size, stride, ranks_max - 1));
    }
    span += (size - 1) * stride;
  }
  if (layout.offset >= ranks_max - span) {
    return fail(ErrorKind::invalid,
                fmt::format("a region from rank {} that spans {} ranks reaches past rank {}",
                            layout.offset, span + 1, ranks_max - 1));
  }
  return {};
}

}  // namespace

Region::Region(const Shape& shape) {
  const auto valid = shape.validate();
  TESON_CHECK(valid.has_value(), valid.error().message);
  layout_.dimensions = with_strides(shape.dimensions, 1);
}

Result<Region> Region::make(RegionLayout layout) {
  TESON_TRY_VOID(shape_of(layout.dimensions).validate());
  TESON_TRY_VOID(check_nesting(layout));
  for (auto& dimension : layout.dimensions)
    dimension.stride = stride_for(dimension.size, dimension.stride);
  Region region;
  region.layout_ = std::move(layout);
  return region;
}

Result<std::size_t> Region::find(std::string_view dimension) const {
  for (std::size_t i = 0; i < layout_.dimensions.size(); ++i) {
    if (layout_.dimensions[i].name == dimension) return i;
  }
  return fail(ErrorKind::invalid,
              fmt::format("no dimension '{}' in the mesh ({})", dimension, shape().describe()));
}

Result<Region> Region::at(std::string_view dimension, std::uint64_t index) const {
  TESON_TRY(const std::size_t place, find(dimension));
  const auto& [name, size, stride] = layout_.dimensions[place];
  if (index >= size) {
    return fail(ErrorKind::invalid,
                fmt::format("index {} is outside dimension '{}' of the mesh ({}); it must be below "
                            "{}",
                            index, name, shape().describe(), size));
  }
  Region region = *this;
  region.layout_.offset += index * stride;
  region.layout_.dimensions.erase(region.layout_.dimensions.begin() +
                                  static_cast<std::ptrdiff_t>(place));
  return region;
}

Result<Region> Region::slice(std::string_view dimension, std::uint64_t begin, std::uint64_t end,
                             std::uint64_t step) const {
  TESON_TRY(const std::size_t place, find(dimension));
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorKind::invalid,
                fmt::format("slicing '{}' from {} to {} by {} in the mesh ({}): {}", dimension,
                            begin, end, step, shape().describe(), why));
  };
  const std::uint64_t size = layout_.dimensions[place].size;
  if (step == 0) return refuse("the step must be at least 1");
  if (end > size) return refuse(fmt::format("outside the dimension, which ends at {}", size));
  if (begin >= end) return refuse("it would be empty; the end must lie after the begin");

  Region region = *this;
  auto& sliced = region.layout_.dimensions[place];
  region.layout_.offset += begin * sliced.stride;
  sliced.size = (end - begin - 1) / step + 1;
  // A step past the end may be of any size: only where two elements remain does it lie inside.
  sliced.stride = sliced.size == 1 ? 0 : sliced.stride * step;
  return region;
}

Result<Region> Region::split(std::string_view dimension, std::vector<Dimension> parts) const {
  TESON_TRY(const std::size_t place, find(dimension));
  const std::string request = fmt::format("splitting '{}' into {} in the mesh ({})", dimension,
                                          describe_parts(parts), shape().describe());
  const auto& [name, size, stride] = layout_.dimensions[place];
  if (auto completed = complete(parts, size); !completed) {
    return fail(completed.error().in(request));
  }
  const auto strided = with_strides(parts, stride);
  RegionLayout layout = layout_;
  const auto where =
      layout.dimensions.erase(layout.dimensions.begin() + static_cast<std::ptrdiff_t>(place));
  layout.dimensions.insert(where, strided.begin(), strided.end());
  return make(std::move(layout)).map_error([&](const Error& error) { return error.in(request); });
}

Result<Region> Region::flatten(std::string name) const {
  const std::string request = fmt::format("flattening the mesh ({}) to '{}'", describe(), name);
  RegionDimension flat{std::move(name)};
  for (std::size_t i = layout_.dimensions.size(); i-- > 0;) {
    const auto& dimension = layout_.dimensions[i];
    if (dimension.size == 1) continue;
    if (flat.size == 1) flat.stride = dimension.stride;
    if (dimension.stride != flat.size * flat.stride) {
      return fail(ErrorKind::invalid,
                  fmt::format("{}: its ranks are not evenly spaced; a step along '{}' is {}, "
                              "expected {}",
                              request, dimension.name, dimension.stride, flat.size * flat.stride));
    }
    flat.size *= dimension.size;
  }
  return make({layout_.offset, {std::move(flat)}}).map_error([&](const Error& error) {
    return error.in(request);
  });
}

Result<Region> Region::rename(std::string_view from, std::string to) const {
  TESON_TRY(const std::size_t place, find(from));
  const std::string request =
      fmt::format("renaming '{}' to '{}' in the mesh ({})", from, to, shape().describe());
  RegionLayout layout = layout_;
  layout.dimensions[place].name = std::move(to);
  return make(std::move(layout)).map_error([&](const Error& error) { return error.in(request); });
}

Shape Region::shape() const {
  return shape_of(layout_.dimensions);
}

std::size_t Region::ranks() const {
  std::size_t product = 1;
  for (const auto& dimension : layout_.dimensions)
    product *= dimension.size;
  return product;
}

std::size_t Region::rank_at(std::size_t element) const {
  TESON_CHECK(element < ranks(), element, ranks());
  std::size_t rank = layout_.offset;
  for (std::size_t i = layout_.dimensions.size(); i-- > 0;) {
    const auto& [name, size, stride] = layout_.dimensions[i];
    rank += element % size * stride;
    element /= size;
  }
  return rank;
}

std::optional<std::size_t> Region::index_of(std::size_t rank) const {
  if (rank < layout_.offset) return std::nullopt;
  std::size_t left = rank - layout_.offset;
  std::size_t element = 0;
  for (const auto& [name, size, stride] : layout_.dimensions) {
    // The dimensions inside span less than the stride, so no other coordinate could reach the rank.
    const std::size_t coordinate = size == 1 ? 0 : left / stride;
    if (coordinate >= size) return std::nullopt;
    left -= coordinate * stride;
    element = element * size + coordinate;
  }
  if (left != 0) return std::nullopt;
  return element;
}

std::vector<std::size_t> Region::coordinates(std::size_t element) const {
  TESON_CHECK(element < ranks(), element, ranks());
  std::vector<std::size_t> found(layout_.dimensions.size());
  for (std::size_t i = found.size(); i-- > 0;) {
    found[i] = element % layout_.dimensions[i].size;
    element /= layout_.dimensions[i].size;
  }
  return found;
}

Result<std::size_t> Region::coordinate(std::size_t element, std::string_view dimension) const {
  TESON_TRY(const std::size_t place, find(dimension));
  return coordinates(element)[place];
}

Result<std::size_t> Region::index(const std::vector<std::size_t>& coordinates) const {
  if (coordinates.size() != layout_.dimensions.size()) {
    return fail(ErrorKind::invalid,
                fmt::format("{} coordinates for the {} dimensions of the mesh ({})",
                            coordinates.size(), layout_.dimensions.size(), shape().describe()));
  }
  std::size_t element = 0;
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    const auto& [name, size, stride] = layout_.dimensions[i];
    if (coordinates[i] >= size) {
      return fail(ErrorKind::invalid,
                  fmt::format("coordinate {} is outside dimension '{}' of the mesh ({}); it must "
                              "be below {}",
                              coordinates[i], name, shape().describe(), size));
    }
    element = element * size + coordinates[i];
  }
  return element;
}

std::vector<std::size_t> Region::ranks_list() const {
  std::vector<std::size_t> list(ranks());
  for (std::size_t element = 0; element < list.size(); ++element)
    list[element] = rank_at(element);
  return list;
}

std::string Region::describe() const {
  std::string text;
  for (const auto& [name, size, stride] : layout_.dimensions) {
    text += fmt::format("{}={}", name, size);
    text += size == 1 ? ", " : fmt::format(" every {}, ", stride);
  }
  return text + fmt::format("from rank {}", layout_.offset);
}

}  // namespace teson::actor
