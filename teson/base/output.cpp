#include "teson/base/output.h"

#include <cerrno>
#include <cstdio>

namespace teson {

Result<void> finish_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) return fail_errno("write standard output", errno);
  if (std::ferror(stdout) != 0)
    return fail(ErrorKind::failed, "a part of the standard output could not be written");
  return {};
}

}  // namespace teson
