#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "teson/base/check.h"
#include "teson/data/bpe.h"
#include "teson/data/bpe_tables.h"
#include "teson/data/pretokenizer.h"

namespace teson::data {
namespace {

constexpr std::size_t kMergesBetweenProgress = 100;
constexpr std::uint32_t kNone = UINT32_MAX;

using PieceCounts = std::unordered_map<std::string, std::uint64_t, TextHash, std::equal_to<>>;

/// One symbol of one distinct piece; neighbours are linked, and a symbol that was merged into its
/// left one is kNoToken.
struct Symbol {
  TokenId token;
  std::uint32_t previous, next;
  std::uint32_t piece;
};

struct PairCount {
  std::uint64_t count = 0;
  std::vector<std::uint32_t> positions;  ///< of left symbols; some may be out of date
};

struct Candidate {
  std::uint64_t count;
  TokenId left, right;
  bool operator<(const Candidate& other) const {
    if (count != other.count) return count < other.count;
    if (left != other.left) return left > other.left;
    return right > other.right;
  }
};

/// Every adjacent pair with its count, kept up to date merge by merge.
class PairTable {
 public:
  explicit PairTable(const PieceCounts& pieces) {
    for (const auto& [piece, count] : pieces)
      add_piece(piece, count);
    for (const auto& [key, pair] : pairs_)
      push(key);
  }

  /// The most frequent pair, or one with count 0 if none occurs twice.
  Candidate best() {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      heap_.pop();
      const std::uint64_t key = pair_key(top.left, top.right);
      const std::uint64_t count = pairs_[key].count;
      if (count == top.count) return top;
      push(key);
    }
    return {};
  }

  void merge(TokenId left, TokenId right, TokenId merged) {
    // Taken out: what follows inserts into the table.
    std::vector<std::uint32_t> positions = std::move(pairs_[pair_key(left, right)].positions);
    std::sort(positions.begin(), positions.end());  // overlapping pairs merge from the left
    created_.clear();
    for (const std::uint32_t at : positions) {
      if (symbols_[at].token != left || symbols_[at].next == kNone) continue;
      if (symbols_[symbols_[at].next].token != right) continue;
      merge_at(at, merged);
    }
    pairs_.erase(pair_key(left, right));
    std::sort(created_.begin(), created_.end());
    created_.erase(std::unique(created_.begin(), created_.end()), created_.end());
    for (const std::uint64_t key : created_)
      push(key);
  }

 private:
  void add_piece(std::string_view text, std::uint64_t count) {
    const std::size_t first = symbols_.size();
    TESON_CHECK(first + text.size() < kNone, first, text.size());
    const auto piece = static_cast<std::uint32_t>(weights_.size());
    weights_.push_back(count);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto at = static_cast<std::uint32_t>(first + i);
      symbols_.push_back({static_cast<unsigned char>(text[i]), i == 0 ? kNone : at - 1,
                          i + 1 == text.size() ? kNone : at + 1, piece});
    }
    for (std::size_t i = 0; i + 1 < text.size(); ++i)
      add_pair(static_cast<std::uint32_t>(first + i));
  }

  std::uint64_t key_at(std::uint32_t at) const {
    return pair_key(symbols_[at].token, symbols_[symbols_[at].next].token);
  }

  void add_pair(std::uint32_t at) {
    PairCount& pair = pairs_[key_at(at)];
    pair.count += weights_[symbols_[at].piece];
    pair.positions.push_back(at);
  }

  void drop_pair(std::uint32_t at) {
    if (const auto found = pairs_.find(key_at(at)); found != pairs_.end()) {
      found->second.count -= weights_[symbols_[at].piece];
    }
  }

  void merge_at(std::uint32_t at, TokenId merged) {
    Symbol& left = symbols_[at];
    Symbol& right = symbols_[left.next];
    if (left.previous != kNone) drop_pair(left.previous);
    if (right.next != kNone) drop_pair(left.next);
    drop_pair(at);
    left.token = merged;
    left.next = right.next;
    right.token = kNoToken;
    if (left.next != kNone) symbols_[left.next].previous = at;
    if (left.previous != kNone) create_pair(left.previous);
    if (left.next != kNone) create_pair(at);
  }

  void create_pair(std::uint32_t at) {
    add_pair(at);
    created_.push_back(key_at(at));
  }

  void push(std::uint64_t key) {
    const std::uint64_t count = pairs_[key].count;
    if (count >= 2)
      heap_.push({count, static_cast<TokenId>(key >> 32), static_cast<TokenId>(key & UINT32_MAX)});
  }

  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> weights_;  ///< how often each distinct piece occurs
  std::unordered_map<std::uint64_t, PairCount, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<std::uint64_t> created_;
};

/// Which byte strings are tokens already.
class KnownTokens {
 public:
  KnownTokens() {
    for (int byte = 0; byte < 256; ++byte)
      add(std::string(1, static_cast<char>(byte)));
  }
  void add(std::string bytes) {
    seen_.insert(bytes);
    bytes_.push_back(std::move(bytes));
  }
  std::string join(TokenId left, TokenId right) const { return bytes_[left] + bytes_[right]; }
  bool allows(const std::string& bytes) const {
    return bytes.size() <= kTokenBytesMax && !seen_.contains(bytes);
  }
  TokenId next() const { return static_cast<TokenId>(bytes_.size()); }

 private:
  std::vector<std::string> bytes_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

struct BpeLearner::State {
  Pretokenizer pretokenizer;
  PieceCounts pieces;
};

BpeLearner::BpeLearner() : state_(std::make_unique<State>()) {}
BpeLearner::BpeLearner(BpeLearner&&) noexcept = default;
BpeLearner& BpeLearner::operator=(BpeLearner&&) noexcept = default;
BpeLearner::~BpeLearner() = default;

void BpeLearner::add(std::string_view text) {
  state_->pretokenizer.split(text, [&](std::string_view piece) {
    auto found = state_->pieces.find(piece);
    if (found == state_->pieces.end()) found = state_->pieces.emplace(std::string(piece), 0).first;
    ++found->second;
  });
}

std::size_t BpeLearner::distinct_pieces() const {
  return state_->pieces.size();
}

Result<Tokenizer> BpeLearner::learn(
    std::size_t vocabulary_size, std::vector<std::string> specials,
    const std::function<bool(const LearnProgress&)>& progress) const {
  if (vocabulary_size < 256 + specials.size() || vocabulary_size > kVocabularyMax) {
    return fail(
        ErrorKind::invalid,
        fmt::format(
            "a vocabulary of {} tokens: expected {} (256 bytes and {} special tokens) to {}",
            vocabulary_size, 256 + specials.size(), specials.size(), kVocabularyMax));
  }
  const std::size_t merges_planned = vocabulary_size - 256 - specials.size();
  BpeModel model{.merges = {}, .specials = std::move(specials)};
  PairTable table(state_->pieces);
  KnownTokens known;
  while (model.merges.size() < merges_planned) {
    const Candidate best = table.best();
    if (best.count == 0) break;
    std::string bytes = known.join(best.left, best.right);
    if (!known.allows(bytes)) continue;  // out of the heap for good, since its count can only fall
    table.merge(best.left, best.right, known.next());
    known.add(std::move(bytes));
    model.merges.emplace_back(best.left, best.right);
    if (progress && model.merges.size() % kMergesBetweenProgress == 0 &&
        !progress({model.merges.size(), merges_planned})) {
      return fail(ErrorKind::aborted, "learning the tokenizer was stopped");
    }
  }
  return Tokenizer::make(std::move(model));
}

}  // namespace teson::data
