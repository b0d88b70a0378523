#pragma once

#include <cstdint>
#include <string>

namespace teson::train {

/// What besides data and configuration the bits of a step depend on: libtorch's version,
/// the instruction set its kernels use, and the threads they run on. In words, for messages:
/// "libtorch 2.13.0, AVX512, 1 thread".
std::string execution_class(int threads);

}  // namespace teson::train
