#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "teson/actor/region.h"
#include "teson/actor/shape.h"
#include "teson/base/check.h"
#include "teson/base/error.h"

namespace teson::actor {

/// What can be done with the shape of a mesh, the same for processes and actors. Each operation
/// gives another handle to some of the same things and costs a few numbers, however many they are.
/// See Region for their meaning and errors: `invalid`, naming the dimension, what there is and what
/// was asked.
///
///     TESON_TRY(auto row, workers.at("replica", 1));            // the dimension goes
///     TESON_TRY(auto half, workers.slice("replica", 0, 2));     // it stays
///     auto one = workers.at(3);
///
/// Mesh has region(), in ranks of the whole mesh of processes, and through(Region).
template <typename Mesh, typename Handle = Mesh>
class Sliceable {
 public:
  std::size_t size() const { return self().region().ranks(); }
  Shape shape() const { return self().region().shape(); }
  /// The ranks that it holds, as the whole mesh of processes counts them; ascending.
  std::vector<std::size_t> ranks() const { return self().region().ranks_list(); }

  /// The one at a rank of this mesh, 0 … size() - 1, as a mesh without dimensions.
  Handle at(std::size_t rank) const {
    TESON_CHECK(rank < size(), rank, size());
    return self().through(*Region::make({.offset = self().region().rank_at(rank)}));
  }
  Result<Handle> at(std::string_view dimension, std::uint64_t index) const {
    return through(self().region().at(dimension, index));
  }
  Result<Handle> slice(std::string_view dimension, std::uint64_t begin, std::uint64_t end,
                       std::uint64_t step = 1) const {
    return through(self().region().slice(dimension, begin, end, step));
  }
  Result<Handle> split(std::string_view dimension, std::vector<Dimension> parts) const {
    return through(self().region().split(dimension, std::move(parts)));
  }
  Result<Handle> flatten(std::string name) const {
    return through(self().region().flatten(std::move(name)));
  }
  Result<Handle> rename(std::string_view from, std::string to) const {
    return through(self().region().rename(from, std::move(to)));
  }

 private:
  const Mesh& self() const { return static_cast<const Mesh&>(*this); }
  Result<Handle> through(Result<Region> region) const {
    if (!region) return Failure(std::move(region).error());
    return self().through(std::move(*region));
  }
};

}  // namespace teson::actor
