#include "teson/net/codec.h"

#include <fmt/format.h>

namespace teson::net::detail {

const std::byte* Reader::take(std::size_t size, const char* what) {
  if (!error_.message.empty()) return nullptr;
  if (size > left()) {
    error_ = {
        ErrorKind::invalid,
        fmt::format(
            "decoding {} at byte {}: expected {} bytes, found {}; the message is cut short or "
            "of another build",
            what, at_, size, left())};
    return nullptr;
  }
  static constexpr std::byte nothing{};
  const std::byte* from = bytes_.empty() ? &nothing : bytes_.data() + at_;
  at_ += size;
  return from;
}

bool Reader::refuse(const char* what, std::uint64_t found) {
  if (error_.message.empty()) {
    error_ = {
        ErrorKind::invalid,
        fmt::format(
            "decoding before byte {}: expected {} {}; the message is damaged or of another build",
            at_, what, found)};
  }
  return false;
}

bool Reader::at_end() {
  if (error_.message.empty() && left() > 0) {
    error_ = {ErrorKind::invalid, fmt::format("decoding: expected the message to end at byte {}, "
                                              "found {} more bytes; it is of another build",
                                              at_, left())};
  }
  return error_.message.empty();
}

bool get_length(Reader& reader, std::size_t each, std::size_t& length) {
  std::uint64_t claimed = 0;
  if (!get(reader, claimed)) return false;
  if (claimed > reader.left() / each)
    return reader.refuse("a length that the remaining bytes can hold, found", claimed);
  length = static_cast<std::size_t>(claimed);
  return true;
}

}  // namespace teson::net::detail
