#include "teson/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace teson::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s%s%s%s\n", file, line, condition,
               values.empty() ? "" : " (", values.c_str(), values.empty() ? "" : ")");
  std::fflush(stderr);
  std::abort();
}

}  // namespace teson::detail
