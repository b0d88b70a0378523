#include "teson/net/payload.h"

#include <cstring>

#include "teson/base/check.h"

namespace teson::net {

Payload::Payload(std::string text) {
  const auto kept = std::make_shared<const std::string>(std::move(text));
  bytes_ = std::as_bytes(std::span(*kept));
  keeper_ = kept;
}

Payload::Payload(Buffer buffer) {
  const auto kept = std::make_shared<const Buffer>(std::move(buffer));
  bytes_ = kept->bytes();
  keeper_ = kept;
}

Payload::Payload(std::shared_ptr<SharedBlock> block, std::size_t size)
    : block_(std::move(block)), bytes_(block_->bytes().first(size)) {}

void PayloadWriter::reserve(std::size_t bytes) {
  if (bytes < shared_payload_bytes_min) return text_.reserve(bytes);
  if (block_ && block_->size() >= bytes) return;
  auto block = SharedPool::of_process().take(bytes);
  if (!block) {
    spill();
    return text_.reserve(bytes);
  }
  const std::size_t filled = size();
  if (filled > 0) std::memcpy(block->writable().data(), begin(), filled);
  text_ = {};
  block_ = std::move(block);
  filled_ = filled;
}

void PayloadWriter::append_shared(const char* data, std::size_t size) {
  if (size > block_->size() - filled_) {
    spill();
    text_.append(data, size);
    return;
  }
  std::memcpy(begin() + filled_, data, size);
  filled_ += size;
}

void PayloadWriter::spill() {
  if (!block_) return;
  text_.assign(begin(), filled_);
  block_.reset();
  filled_ = 0;
}

void PayloadWriter::overwrite(std::size_t at, std::span<const std::byte> bytes) {
  TESON_CHECK(at + bytes.size() <= size(), at, bytes.size(), size());
  std::memcpy(begin() + at, bytes.data(), bytes.size());
}

Payload PayloadWriter::finish() && {
  if (!block_) return Payload(std::move(text_));
  return {std::move(block_), filled_};
}

}  // namespace teson::net
