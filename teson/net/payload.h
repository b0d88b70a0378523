#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "teson/net/shared_pool.h"

namespace teson::net {

/// From this size on a payload lies in shared memory, if there is some: below, a copy through a
/// socket is as quick as a mapping.
inline constexpr std::size_t shared_payload_bytes_min = std::size_t{256} << 10;

class Buffer;

/// Bytes to be sent, which do not change any more and which many may hold. A light handle.
class Payload {
 public:
  Payload() = default;
  explicit Payload(std::string text);
  /// The first `size` bytes of a block.
  Payload(std::shared_ptr<SharedBlock> block, std::size_t size);
  /// What has arrived, to be sent on.
  explicit Payload(Buffer buffer);

  std::size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  /// What they lie in, if another process of this host can map it; else null.
  const std::shared_ptr<SharedBlock>& block() const { return block_; }
  /// Keeps the bytes for as long as it is held.
  std::shared_ptr<const void> keeper() const {
    if (block_) return block_;
    return keeper_;
  }

 private:
  std::shared_ptr<const void> keeper_;
  std::shared_ptr<SharedBlock> block_;
  std::span<const std::byte> bytes_;
};

/// A payload in the making. The codec writes into it as into a string. One thread.
class PayloadWriter {
 public:
  std::size_t size() const { return block_ ? filled_ : text_.size(); }
  /// So many bytes there will be, or more: a large payload is begun where it can be shared.
  void reserve(std::size_t bytes);
  void append(const char* data, std::size_t size) {
    if (block_) return append_shared(data, size);
    text_.append(data, size);
  }
  void push_back(char byte) { append(&byte, 1); }
  /// In place of bytes that are there already.
  void overwrite(std::size_t at, std::span<const std::byte> bytes);
  Payload finish() &&;

 private:
  char* begin() {
    return block_ ? reinterpret_cast<char*>(block_->writable().data()) : text_.data();
  }
  void append_shared(const char* data, std::size_t size);
  void spill();

  std::string text_;
  std::shared_ptr<SharedBlock> block_;
  std::size_t filled_ = 0;  ///< of the block
};

/// Bytes that have arrived, with one owner. Move-only.
class Buffer {
 public:
  Buffer() = default;
  /// Not zeroed: to be filled.
  explicit Buffer(std::size_t size)
      : own_(std::make_unique_for_overwrite<std::byte[]>(size)), bytes_(own_.get(), size) {}
  /// Bytes that lie elsewhere, in something that `keeper` holds.
  Buffer(std::span<const std::byte> bytes, std::shared_ptr<const void> keeper)
      : keeper_(std::move(keeper)), bytes_(bytes) {}
  explicit Buffer(const Payload& payload) : Buffer(payload.bytes(), payload.keeper()) {}
  Buffer(Buffer&& other) noexcept
      : own_(std::move(other.own_)),
        keeper_(std::move(other.keeper_)),
        bytes_(std::exchange(other.bytes_, {})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    own_ = std::move(other.own_);
    keeper_ = std::move(other.keeper_);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }

  std::size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  /// Of a buffer that was made to be filled; else nothing.
  std::span<std::byte> room() { return {own_.get(), own_ ? bytes_.size() : 0}; }

 private:
  std::unique_ptr<std::byte[]> own_;
  std::shared_ptr<const void> keeper_;
  std::span<const std::byte> bytes_;
};

}  // namespace teson::net
