#include "teson/data/spool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "teson/base/check.h"
#include "teson/base/file.h"
#include "teson/base/random.h"

namespace teson::data {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
using Length = std::uint32_t;

}  // namespace

Result<Spool> Spool::make(const fs::path& folder) {
  // Not O_TMPFILE, which some file systems lack.
  const fs::path path = folder / fmt::format("documents-{:016x}.spool", entropy64());
  TESON_TRY(Fd file, open_file(path, O_RDWR | O_CREAT | O_EXCL, 0600));
  if (::unlink(path.c_str()) != 0)
    return fail_errno(fmt::format("remove '{}'", path.string()), errno);
  return Spool(std::move(file), folder);
}

Result<void> Spool::flush() {
  TESON_TRY_VOID(write_all(file_.get(), buffer_, folder_));
  written_ += buffer_.size();
  buffer_.clear();
  return {};
}

Result<void> Spool::append(std::string_view document) {
  TESON_CHECK(document.size() <= UINT32_MAX, document.size());
  const auto length = static_cast<Length>(document.size());
  buffer_.append(reinterpret_cast<const char*>(&length), sizeof length);
  buffer_ += document;
  return buffer_.size() >= kBufferBytes ? flush() : Result<void>{};
}

Result<void> Spool::for_each(const std::function<Result<void>(std::string_view)>& take) {
  TESON_TRY_VOID(flush());
  std::string window;
  std::uint64_t read = 0;
  std::size_t at = 0;
  const auto need = [&](std::size_t bytes) -> Result<void> {
    if (window.size() - at >= bytes) return {};
    window.erase(0, at);
    at = 0;
    while (window.size() < bytes) {
      const std::size_t kept = window.size();
      window.resize(kept + std::max(kBufferBytes, bytes - kept));
      const ssize_t got = ::pread(file_.get(), window.data() + kept, window.size() - kept,
                                  static_cast<off_t>(read));
      const int error = errno;
      window.resize(kept + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      if (got < 0 && error == EINTR) continue;
      if (got < 0)
        return fail_errno(fmt::format("read back documents in '{}'", folder_.string()), error);
      if (got == 0)
        return fail(ErrorKind::failed,
                    fmt::format("documents in '{}' were cut short", folder_.string()));
      read += static_cast<std::uint64_t>(got);
    }
    return {};
  };
  while (read - (window.size() - at) < written_) {
    TESON_TRY_VOID(need(sizeof(Length)));
    Length length = 0;
    std::memcpy(&length, window.data() + at, sizeof length);
    TESON_TRY_VOID(need(sizeof length + length));
    TESON_TRY_VOID(take(std::string_view(window).substr(at + sizeof length, length)));
    at += sizeof length + length;
  }
  return {};
}

}  // namespace teson::data
