#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "teson/base/error.h"
#include "teson/base/fd.h"
#include "teson/base/hash.h"
#include "teson/data/corpus.h"

namespace teson::data {

/// Reads a text file in pieces of about 256 KiB: checks that it is UTF-8 without NUL bytes, drops a
/// byte order mark, and on request turns line ends into "\n". A piece may end anywhere between two
/// characters. One thread.
class TextReader {
 public:
  static Result<TextReader> open(const Source& source, bool normalise);
  /// The next piece, valid until the next call; empty at the end of the file.
  Result<std::string_view> next();
  /// Of the bytes of the file, once next() was empty. Call once.
  std::string sha256() { return digest_.finish(); }
  std::uint64_t bytes_read() const { return offset_; }

 private:
  TextReader(std::string path, bool normalise, Fd file)
      : path_(std::move(path)), normalise_(normalise), file_(std::move(file)) {}
  Result<std::size_t> fill();
  std::optional<Error> check(std::string_view fresh, bool at_end, std::size_t& valid) const;

  std::string path_;
  bool normalise_;
  Fd file_;
  Sha256 digest_;
  std::uint64_t offset_ = 0;  ///< bytes read from the file
  std::string
      raw_;  ///< read, not yet handed out: at most an incomplete character or a "\r" is kept
  std::string piece_;
};

}  // namespace teson::data
