#include "teson/train/execution_class.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

namespace teson::train {

std::string execution_class(int threads) {
  return fmt::format("libtorch {}, {}, {} thread{}", TORCH_VERSION, at::get_cpu_capability(),
                     threads, threads == 1 ? "" : "s");
}

}  // namespace teson::train
