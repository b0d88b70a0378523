#include "teson/data/bpe.h"

#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/base/file.h"
#include "teson/data/builtin.h"
#include "teson/data/pretokenizer.h"
#include "teson/data/test_folder.h"

namespace teson::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  Pretokenizer().split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

/// The definition, word for word and as slow as it is: an independent reference.
struct NaiveBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<int, int>> merges;

  static std::vector<int> apply(std::vector<int> word, std::pair<int, int> pair, int merged) {
    std::vector<int> out;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (i + 1 < word.size() && word[i] == pair.first && word[i + 1] == pair.second) {
        out.push_back(merged);
        ++i;
      } else {
        out.push_back(word[i]);
      }
    }
    return out;
  }

  static std::vector<int> bytes(std::string_view text) {
    std::vector<int> out;
    for (const char byte : text)
      out.push_back(static_cast<unsigned char>(byte));
    return out;
  }

  NaiveBpe(const std::vector<std::string>& words, std::size_t merges_max) {
    for (int byte = 0; byte < 256; ++byte)
      tokens.emplace_back(1, static_cast<char>(byte));
    std::vector<std::vector<int>> split;
    for (const std::string& word : words)
      split.push_back(bytes(word));
    while (merges.size() < merges_max) {
      std::map<std::pair<int, int>, int> counts;
      for (const auto& word : split) {
        for (std::size_t i = 0; i + 1 < word.size(); ++i)
          ++counts[{word[i], word[i + 1]}];
      }
      std::pair<int, int> best;
      int most = 1;
      for (const auto& [pair, count] : counts) {  // in order of the pair: the smallest wins a tie
        const std::string text = tokens[static_cast<std::size_t>(pair.first)] +
                                 tokens[static_cast<std::size_t>(pair.second)];
        const bool known = std::find(tokens.begin(), tokens.end(), text) != tokens.end();
        if (count > most && !known && text.size() <= kTokenBytesMax) {
          best = pair;
          most = count;
        }
      }
      if (most == 1) return;
      for (auto& word : split)
        word = apply(word, best, static_cast<int>(tokens.size()));
      tokens.push_back(tokens[static_cast<std::size_t>(best.first)] +
                       tokens[static_cast<std::size_t>(best.second)]);
      merges.push_back(best);
    }
  }

  std::vector<TokenId> encode(std::string_view text) const {
    std::vector<TokenId> ids;
    for (const std::string& piece : pieces_of(text)) {
      std::vector<int> word = bytes(piece);
      for (std::size_t i = 0; i < merges.size(); ++i)
        word = apply(word, merges[i], static_cast<int>(256 + i));
      ids.insert(ids.end(), word.begin(), word.end());
    }
    return ids;
  }
};

Tokenizer learn(std::string_view text, std::size_t vocabulary) {
  BpeLearner learner;
  learner.add(text);
  return *learner.learn(vocabulary, {std::string(kEndOfText)});
}

std::string builtin_text() {
  std::string text;
  (void)builtin_documents([&](std::string_view story) {
    text += std::string(story) + "\n";
    return Result<void>{};
  });
  return text;
}

TEST(Pretokenizer, cuts_as_the_published_pattern_does) {
  // Expected values: derived by hand from the cl100k_base pattern.
  EXPECT_THAT(pieces_of("Hello world, it's 12345!"),
              ElementsAre("Hello", " world", ",", " it", "'s", " ", "123", "45", "!"));
  EXPECT_THAT(pieces_of("a  b\n\n  c"), ElementsAre("a", " ", " b", "\n\n", " ", " c"));
  EXPECT_THAT(pieces_of("WE'LL go ...\r\n x"), ElementsAre("WE", "'LL", " go", " ...\r\n", " x"));
  EXPECT_THAT(pieces_of("naïve 日本語 тест\tδ"), ElementsAre("naïve", " 日本語", " тест", "\tδ"));
  EXPECT_THAT(pieces_of("tail   "), ElementsAre("tail", "   "));
}

TEST(Pretokenizer, gives_each_invalid_byte_a_piece) {
  EXPECT_THAT(pieces_of("ab\xFF\xE2\x82 c"), ElementsAre("ab", "\xFF", "\xE2", "\x82", " c"));
}

TEST(Pretokenizer, takes_runs_of_a_million_characters) {
  for (const std::string_view unit : {"a", " ", "\n", "!", "1", "é", " \n", "a ", "\t"}) {
    std::string text;
    while (text.size() < 1'000'000)
      text += unit;
    std::size_t bytes = 0;
    Pretokenizer().split(text, [&](std::string_view piece) { bytes += piece.size(); });
    EXPECT_EQ(bytes, text.size());
  }
}

TEST(Bpe, learns_and_encodes_as_the_naive_definition_does) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    // Few letters and long words: many ties, overlaps ("aaa") and different ways to the same bytes.
    const int letters = 1 + round % 5;
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += i % (5 + round % 11) == 0
                  ? ' '
                  : static_cast<char>('a' + random() % static_cast<unsigned>(letters));
    const NaiveBpe naive(pieces_of(text), 60);
    const Tokenizer tokenizer = learn(text, 256 + 60 + 1);
    std::vector<std::pair<TokenId, TokenId>> expected(naive.merges.begin(), naive.merges.end());
    ASSERT_EQ(tokenizer.model().merges, expected) << "round " << round;
    std::string other;
    for (int i = 0; i < 300; ++i)
      other += random() % 9 == 0
                   ? ' '
                   : static_cast<char>('a' + random() % static_cast<unsigned>(letters));
    EXPECT_EQ(tokenizer.encode(other), naive.encode(other)) << "round " << round;
    EXPECT_EQ(tokenizer.encode(text), naive.encode(text)) << "round " << round;
  }
}

TEST(Bpe, agrees_with_the_naive_definition_on_english) {
  const std::string text = builtin_text().substr(0, 12'000);
  const NaiveBpe naive(pieces_of(text), 150);
  const Tokenizer tokenizer = learn(text, 256 + 150 + 1);
  std::vector<std::pair<TokenId, TokenId>> expected(naive.merges.begin(), naive.merges.end());
  ASSERT_EQ(tokenizer.model().merges, expected);
  EXPECT_EQ(tokenizer.encode(text), naive.encode(text));
}

TEST(Bpe, does_not_depend_on_the_order_of_texts) {
  BpeLearner forward, backward;
  std::vector<std::string> stories;
  (void)builtin_documents([&](std::string_view story) {
    stories.emplace_back(story);
    return Result<void>{};
  });
  for (const std::string& story : stories)
    forward.add(story);
  std::reverse(stories.begin(), stories.end());
  for (const std::string& story : stories)
    backward.add(story);
  const std::vector<std::string> specials = {std::string(kEndOfText)};
  EXPECT_EQ(forward.learn(512, specials)->fingerprint(),
            backward.learn(512, specials)->fingerprint());
}

TEST(Bpe, gives_back_any_bytes) {
  const Tokenizer tokenizer = learn(builtin_text(), 512);
  Encoder encoder(tokenizer);
  std::mt19937 random(11);
  constexpr std::string_view some = "Ana \xC3\xA9\xE2\x82\xAC\n'12";
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (int i = 0; i < round; ++i) {
      bytes += round % 3 == 0 ? static_cast<char>(random() % 256) : some[random() % some.size()];
    }
    std::vector<TokenId> ids;
    encoder.encode(bytes, ids);
    ASSERT_EQ(*tokenizer.decode(ids), bytes);
    ASSERT_EQ(ids, tokenizer.encode(bytes));  // with and without what the encoder remembers
  }
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(Bpe, encodes_one_word_of_a_million_letters) {
  const Tokenizer tokenizer = learn(builtin_text(), 512);
  const std::string word(1'000'000, 'a');
  EXPECT_EQ(*tokenizer.decode(tokenizer.encode(word)), word);
}

TEST(Bpe, keeps_tokens_within_their_bound_on_monotonous_text) {
  const Tokenizer tokenizer = learn(std::string(100'000, 'a'), 300);
  std::size_t longest = 0;
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id)
    longest = std::max(longest, tokenizer.bytes_of(id).size());
  EXPECT_EQ(longest, kTokenBytesMax);
}

TEST(Bpe, has_fewer_tokens_when_the_text_gives_out) {
  EXPECT_EQ(learn("ab ab", 1000).vocabulary_size(), 256u + 1 + 1);  // "ab"; " ab" occurs once
  BpeLearner nothing;
  EXPECT_EQ(nothing.learn(1000, {std::string(kEndOfText)})->vocabulary_size(), 257u);
}

TEST(Bpe, never_makes_a_special_token_out_of_text) {
  const Tokenizer tokenizer = learn(builtin_text(), 512);
  const auto ids = tokenizer.encode("a<|endoftext|>b");
  EXPECT_THAT(ids, ::testing::Each(::testing::Lt(tokenizer.end_of_text())));
  EXPECT_EQ(tokenizer.end_of_text(), 511u);
  EXPECT_TRUE(tokenizer.is_special(511));
  EXPECT_FALSE(tokenizer.is_special(510));
  EXPECT_EQ(tokenizer.find_special("<|endoftext|>"), 511u);
  EXPECT_EQ(tokenizer.find_special("<|pad|>"), std::nullopt);
  EXPECT_EQ(*tokenizer.decode(std::vector<TokenId>{65, 511}), "A<|endoftext|>");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{512}).error().kind, ErrorKind::invalid);
}

TEST(Bpe, learning_can_be_stopped_and_refuses_impossible_sizes) {
  BpeLearner learner;
  learner.add(builtin_text());
  const std::vector<std::string> specials = {std::string(kEndOfText)};
  EXPECT_EQ(learner.learn(1000, specials, [](const LearnProgress&) { return false; }).error().kind,
            ErrorKind::aborted);
  EXPECT_EQ(learner.learn(256, specials).error().kind, ErrorKind::invalid);
  EXPECT_EQ(learner.learn(kVocabularyMax + 1, specials).error().kind, ErrorKind::invalid);
}

TEST(TokenizerModel, refuses_impossible_merges_and_specials) {
  const auto message = [](BpeModel model) {
    const auto made = Tokenizer::make(std::move(model));
    return made ? std::string("none") : made.error().message;
  };
  EXPECT_THAT(message({.merges = {{256, 0}}}), HasSubstr("only 256 exist"));
  EXPECT_THAT(message({.merges = {{97, 98}, {97, 98}}}), HasSubstr("exists already"));
  EXPECT_THAT(message({.merges = {{97, 98}, {256, 99}, {98, 99}, {97, 258}}}),
              HasSubstr("merge 3 makes a token that exists"));
  BpeModel doubling;
  doubling.merges.emplace_back(97, 97);
  for (TokenId i = 0; i < 40; ++i)
    doubling.merges.emplace_back(256 + i, 256 + i);
  EXPECT_THAT(message(doubling), HasSubstr("at most 256"));
  EXPECT_THAT(message({.specials = {"<|pad|>"}}), HasSubstr("lack"));
  EXPECT_THAT(message({.specials = {"<|endoftext|>", "<|endoftext|>"}}), HasSubstr("twice"));
  EXPECT_THAT(message({.specials = {"<|endoftext|>", ""}}), HasSubstr("1 to 256 bytes"));
}

TEST(TokenizerFile, comes_back_as_it_was_saved) {
  TestFolder folder;
  const Tokenizer tokenizer = learn(builtin_text() + "\xFF\xFF \xFF\xFF é é \t\n \t\n", 600);
  ASSERT_TRUE(tokenizer.save(folder.path() / "t.json"));
  const auto loaded = Tokenizer::load(folder.path() / "t.json");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->model().merges, tokenizer.model().merges);
  EXPECT_EQ(loaded->fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(loaded->to_json(), tokenizer.to_json());
}

TEST(TokenizerFile, is_refused_when_cut_anywhere) {
  const std::string json = learn(builtin_text(), 280).to_json();
  for (std::size_t length = 0; length < json.size(); ++length) {
    const auto parsed = Tokenizer::parse(std::string_view(json).substr(0, length), "t.json");
    ASSERT_FALSE(parsed) << length;
    ASSERT_EQ(parsed.error().kind, ErrorKind::invalid);
    ASSERT_THAT(parsed.error().message, HasSubstr("'t.json'"));
  }
}

TEST(TokenizerFile, is_refused_when_any_byte_is_another) {
  const std::string json = learn(builtin_text(), 280).to_json();
  for (std::size_t at = 0; at < json.size(); ++at) {
    for (const char flip : {'\x01', '\x10', '\x80'}) {
      std::string damaged = json;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      ASSERT_FALSE(Tokenizer::parse(damaged, "t.json")) << at;
    }
  }
}

TEST(TokenizerFile, refuses_what_is_none) {
  for (const std::string_view text :
       {"", "{}", "[]", "null", "3", "{\"format\": 1}",
        "{\"format\":\"teson-tokenizer\",\"version\":2}",
        "{\"format\":\"teson-tokenizer\",\"version\":1,\"merges\":{},\"specials\":[]}",
        "{\"format\":\"teson-tokenizer\",\"version\":1,\"merges\":[\"a\",\"b\"],\"specials\":[]"
        "}"}) {
    EXPECT_FALSE(Tokenizer::parse(text, "t.json")) << text;
  }
  EXPECT_THAT(Tokenizer::load("/nowhere/t.json").error().message, HasSubstr("/nowhere/t.json"));
}

}  // namespace
}  // namespace teson::data
