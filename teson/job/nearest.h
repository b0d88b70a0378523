#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace teson::job {

/// Edits (insert, delete, replace, swap of two neighbours) that turn `a` into `b`: optimal string
/// alignment distance (Boytsov, 2011, section 2.1). Bytes, not characters. O(|a|·|b|) time.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the fewest edits to `word`, the first among equals; empty if none is near:
/// more than a third of the longer one's length, and not the same last part of a dotted key.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace teson::job
