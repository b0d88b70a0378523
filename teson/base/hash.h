#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace teson {

/// XXH3, 64 bits: fast, for checksums and digests between machines that trust each other. Not for
/// secrets.
std::uint64_t hash64(std::span<const std::byte> data, std::uint64_t seed = 0);
std::uint64_t hash64(std::string_view data, std::uint64_t seed = 0);

/// SHA-256, in pieces. Move-only; one thread at a time.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  ~Sha256();
  void update(std::span<const std::byte> data);
  void update(std::string_view data);
  /// Lower-case hexadecimal, 64 characters. Call once.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// HMAC-SHA-256 (RFC 2104).
std::array<std::byte, 32> hmac_sha256(std::string_view key, std::span<const std::byte> data);

/// Compares without telling by its time where the first difference lies.
bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace teson
