#include "teson/base/hash.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <xxhash.h>

#include "teson/base/check.h"

namespace teson {

std::uint64_t hash64(std::span<const std::byte> data, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data.data(), data.size(), seed);
}

std::uint64_t hash64(std::string_view data, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data.data(), data.size(), seed);
}

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  TESON_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> data) {
  TESON_CHECK(EVP_DigestUpdate(context_->evp, data.data(), data.size()) == 1);
}

void Sha256::update(std::string_view data) {
  update(std::as_bytes(std::span(data)));
}

std::string Sha256::finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  TESON_CHECK(EVP_DigestFinal_ex(context_->evp, digest, &size) == 1);
  std::string text;
  for (unsigned i = 0; i < size; ++i)
    text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::array<std::byte, 32> hmac_sha256(std::string_view key, std::span<const std::byte> data) {
  std::array<std::byte, 32> digest{};
  unsigned size = 0;
  const auto* result = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                            reinterpret_cast<unsigned char*>(digest.data()), &size);
  TESON_CHECK(result != nullptr && size == digest.size());
  return digest;
}

bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace teson
