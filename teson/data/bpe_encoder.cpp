#include <functional>
#include <queue>
#include <unordered_map>

#include "teson/data/bpe.h"
#include "teson/data/bpe_tables.h"
#include "teson/data/pretokenizer.h"

namespace teson::data {
namespace {

constexpr std::size_t kCachePiecesMax = 65'536;
constexpr std::size_t kCachePieceBytesMax = 64;

}  // namespace

struct Encoder::State {
  explicit State(Tokenizer with) : tokenizer(std::move(with)) {}

  struct Range {
    std::uint32_t begin, count;
  };
  struct Node {
    TokenId token;
    std::int32_t previous, next;
  };
  /// A possible merge: the token it makes, which is also its rank, above the position of its left
  /// part. So the smallest is the earliest merge, and among equals the leftmost.
  using Candidates = std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>>;

  Tokenizer tokenizer;
  Pretokenizer pretokenizer;
  std::unordered_map<std::string, Range, TextHash, std::equal_to<>> cache;
  std::vector<TokenId> cached_ids;
  std::vector<Node> nodes;
  Candidates candidates;

  TokenId merged_at(std::int32_t at) const {
    const std::int32_t next = nodes[static_cast<std::size_t>(at)].next;
    if (next < 0) return kNoToken;
    return tokenizer.tables_->merged(nodes[static_cast<std::size_t>(at)].token,
                                     nodes[static_cast<std::size_t>(next)].token);
  }

  void offer(std::int32_t at) {
    if (at < 0) return;
    const TokenId token = merged_at(at);
    if (token != kNoToken) candidates.push(pair_key(token, static_cast<std::uint32_t>(at)));
  }

  void merge_piece(std::string_view piece, std::vector<TokenId>& ids) {
    const auto count = static_cast<std::int32_t>(piece.size());
    nodes.clear();
    for (std::int32_t at = 0; at < count; ++at) {
      const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(at)]);
      nodes.push_back({byte, at - 1, at + 1 < count ? at + 1 : -1});
    }
    for (std::int32_t at = 0; at < count; ++at)
      offer(at);
    while (!candidates.empty()) {
      const std::uint64_t candidate = candidates.top();
      candidates.pop();
      const auto token = static_cast<TokenId>(candidate >> 32);
      const auto at = static_cast<std::int32_t>(candidate & UINT32_MAX);
      Node& left = nodes[static_cast<std::size_t>(at)];
      if (left.token == kNoToken || merged_at(at) != token)
        continue;  // its parts have merged otherwise
      Node& right = nodes[static_cast<std::size_t>(left.next)];
      left.token = token;
      left.next = right.next;
      if (right.next >= 0) nodes[static_cast<std::size_t>(right.next)].previous = at;
      right.token = kNoToken;
      offer(left.previous);
      offer(at);
    }
    for (const Node& node : nodes) {
      if (node.token != kNoToken) ids.push_back(node.token);
    }
  }

  void encode_piece(std::string_view piece, std::vector<TokenId>& ids) {
    if (piece.size() > kCachePieceBytesMax) return merge_piece(piece, ids);
    auto found = cache.find(piece);
    if (found == cache.end()) {
      if (cache.size() >= kCachePiecesMax) {
        cache.clear();
        cached_ids.clear();
      }
      const std::size_t begin = cached_ids.size();
      merge_piece(piece, cached_ids);
      const Range range{static_cast<std::uint32_t>(begin),
                        static_cast<std::uint32_t>(cached_ids.size() - begin)};
      found = cache.emplace(std::string(piece), range).first;
    }
    const auto begin = cached_ids.begin() + found->second.begin;
    ids.insert(ids.end(), begin, begin + found->second.count);
  }
};

Encoder::Encoder(Tokenizer tokenizer) : state_(std::make_unique<State>(std::move(tokenizer))) {}
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;
Encoder::~Encoder() = default;

void Encoder::encode(std::string_view text, std::vector<TokenId>& ids) {
  state_->pretokenizer.split(text,
                             [&](std::string_view piece) { state_->encode_piece(piece, ids); });
}

}  // namespace teson::data
