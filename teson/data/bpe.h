#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "teson/base/error.h"

namespace teson::data {

using TokenId = std::uint32_t;

inline constexpr std::string_view kEndOfText = "<|endoftext|>";
/// Bounds of a vocabulary, for learning and for loading.
inline constexpr std::size_t kVocabularyMax = 1 << 20;
inline constexpr std::size_t kTokenBytesMax = 256;
inline constexpr std::size_t kSpecialsMax = 1024;

/// How text is cut into pieces before merging, the pattern of GPT-4 and Llama 3. No merge crosses a
/// piece.
extern const char* const kSplitPattern;

/// What a byte-level BPE is: token b is the byte b (b < 256), token 256 + i is the i-th merge's
/// left token followed by its right one, then come the special tokens. No two tokens have the same
/// bytes.
struct BpeModel {
  std::vector<std::pair<TokenId, TokenId>> merges;
  std::vector<std::string> specials = {std::string(kEndOfText)};
};

/// A byte-level byte-pair tokenizer (Sennrich et al. 2016, over bytes as in GPT-2). Immutable;
/// copies share their tables. Threads: any. Saved as docs/formats/tokens.md, section "Tokenizer".
class Tokenizer {
 public:
  /// `invalid` if a merge names a token that does not exist yet, makes one that exists or is longer
  /// than kTokenBytesMax; if there are more than kVocabularyMax tokens; or if specials lack
  /// kEndOfText, repeat or are empty.
  static Result<Tokenizer> make(BpeModel model);
  /// Strict: an unknown member, a wrong type, a wrong checksum, a truncated or foreign file is
  /// refused, naming `name`.
  static Result<Tokenizer> parse(std::string_view json, std::string_view name);
  static Result<Tokenizer> load(const std::filesystem::path& path);
  Result<void> save(const std::filesystem::path& path) const;
  std::string to_json() const;

  /// Tokens in all: ids are 0 … vocabulary_size() - 1.
  std::size_t vocabulary_size() const;
  const BpeModel& model() const;
  /// The bytes of a token; a special one gives its name. id < vocabulary_size().
  std::string_view bytes_of(TokenId id) const;
  bool is_special(TokenId id) const;
  std::optional<TokenId> find_special(std::string_view name) const;
  TokenId end_of_text() const;
  /// SHA-256 over pattern, merges and specials, hexadecimal: equal fingerprints encode equally.
  const std::string& fingerprint() const;

  /// Any bytes; what is not UTF-8 is encoded byte for byte. The names of special tokens in a text
  /// are ordinary text, so no text can forge one. Makes an Encoder for the call: keep one for many
  /// texts.
  std::vector<TokenId> encode(std::string_view text) const;
  /// The bytes, special tokens by name. decode(encode(x)) == x for every x. `invalid` for an id
  /// outside the vocabulary.
  Result<std::string> decode(std::span<const TokenId> ids) const;

 private:
  friend class Encoder;
  struct Tables;
  explicit Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}
  std::shared_ptr<const Tables> tables_;
};

/// Encodes many texts; remembers the pieces it met (at most 65,536 of up to 64 bytes). Movable; one
/// thread at a time.
class Encoder {
 public:
  explicit Encoder(Tokenizer tokenizer);
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) noexcept;
  ~Encoder();
  /// Appends the tokens of `text` to `ids`.
  void encode(std::string_view text, std::vector<TokenId>& ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct LearnProgress {
  std::size_t merges_done = 0;
  std::size_t merges_planned = 0;
};

/// Learns merges from text. Counts pieces as texts are added, so memory follows the number of
/// distinct pieces, not the size of the text. Movable; one thread at a time.
class BpeLearner {
 public:
  BpeLearner();
  BpeLearner(BpeLearner&&) noexcept;
  BpeLearner& operator=(BpeLearner&&) noexcept;
  ~BpeLearner();
  void add(std::string_view text);
  /// Merges until there are `vocabulary_size` tokens, bytes and specials included, or no pair
  /// occurs twice any more: then the vocabulary is smaller. Each time the most frequent pair; among
  /// equals the one with the smallest left token, then the smallest right one. A pair whose bytes
  /// are a token already, or longer than kTokenBytesMax, is never merged. So the result depends on
  /// the counts of pieces alone, not on the order of texts. `progress` is asked about every
  /// hundredth merge, false stops with `aborted`.
  Result<Tokenizer> learn(std::size_t vocabulary_size, std::vector<std::string> specials,
                          const std::function<bool(const LearnProgress&)>& progress = {}) const;
  std::size_t distinct_pieces() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace teson::data
