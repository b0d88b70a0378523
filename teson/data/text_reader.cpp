#include "teson/data/text_reader.h"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "teson/base/file.h"
#include "teson/data/utf8.h"

namespace teson::data {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool starts_like_utf16(std::string_view text) {
  return text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
}

}  // namespace

Result<TextReader> TextReader::open(const Source& source, bool normalise) {
  TESON_TRY(Fd file, open_file(source.path, O_RDONLY));
  return TextReader(source.path, normalise, std::move(file));
}

Result<std::size_t> TextReader::fill() {
  const std::size_t kept = raw_.size();
  raw_.resize(kept + kReadBytes);
  ssize_t got = -1;
  do {
    got = ::read(file_.get(), raw_.data() + kept, kReadBytes);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return fail_errno(fmt::format("read '{}'", path_), errno);
  raw_.resize(kept + static_cast<std::size_t>(got));
  digest_.update(std::string_view(raw_).substr(kept));
  return static_cast<std::size_t>(got);
}

std::optional<Error> TextReader::check(std::string_view fresh, bool at_end,
                                       std::size_t& valid) const {
  const std::uint64_t begin = offset_ - fresh.size();
  if (begin == 0 && starts_like_utf16(fresh)) {
    return Error{
        ErrorKind::invalid,
        fmt::format("'{}' is UTF-16, expected UTF-8: convert it (iconv -f UTF-16 -t UTF-8)",
                    path_)};
  }
  if (const std::size_t nul = fresh.find('\0'); nul != std::string_view::npos) {
    return Error{
        ErrorKind::invalid,
        fmt::format("'{}' is not a text file: a NUL byte at offset {}; take it out of the corpus",
                    path_, begin + nul)};
  }
  valid = valid_utf8_prefix(fresh);
  if (valid == fresh.size() || (!at_end && is_incomplete_utf8(fresh.substr(valid))))
    return std::nullopt;
  return Error{ErrorKind::invalid,
               fmt::format("'{}' is not UTF-8: byte 0x{:02x} at offset {} begins no valid "
                           "character; convert the file "
                           "(iconv -t UTF-8) or take it out of the corpus",
                           path_, static_cast<unsigned char>(fresh[valid]), begin + valid)};
}

Result<std::string_view> TextReader::next() {
  while (true) {
    TESON_TRY(const std::size_t got, fill());
    const bool at_start = offset_ == 0;
    offset_ += got;
    std::size_t valid = 0;
    if (auto error = check(raw_, got == 0, valid)) return fail(std::move(*error));
    // A "\r" whose "\n" may come with the next piece.
    if (normalise_ && got != 0 && valid > 0 && raw_[valid - 1] == '\r') --valid;
    const bool marked = at_start && std::string_view(raw_).starts_with(kByteOrderMark);
    const std::size_t skip = marked ? kByteOrderMark.size() : 0;
    piece_.assign(raw_, skip, valid - skip);
    raw_.erase(0, valid);
    if (normalise_) normalise_line_ends(piece_);
    if (!piece_.empty() || got == 0) return std::string_view(piece_);
  }
}

}  // namespace teson::data
