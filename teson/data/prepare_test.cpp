#include "teson/data/prepare.h"

#include <cmath>
#include <map>
#include <set>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/base/file.h"
#include "teson/data/test_folder.h"

namespace teson::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

PrepareOptions tiny(const fs::path& folder) {
  return {.corpus = {.sources = {"builtin:tiny"}}, .folder = folder, .vocabulary_size = 400};
}

std::vector<PrepareStage> stages_of(const PrepareOptions& options) {
  std::vector<PrepareStage> stages;
  const auto corpus = prepare(options, [&](const PrepareProgress& now) {
    if (stages.empty() || stages.back() != now.stage) stages.push_back(now.stage);
  });
  EXPECT_TRUE(corpus) << corpus.error().message;
  return stages;
}

std::string error_of(const PrepareOptions& options) {
  const auto corpus = prepare(options);
  return corpus ? "none" : corpus.error().describe();
}

std::vector<TokenId> all_tokens(const TokenStream& stream) {
  std::vector<std::int64_t> tokens(stream.size());
  EXPECT_TRUE(stream.read(0, tokens));
  return {tokens.begin(), tokens.end()};
}

/// Documents as the tokens tell them.
std::multiset<std::string> documents_in(const PreparedCorpus& corpus, const TokenStream& stream) {
  std::multiset<std::string> documents;
  std::string document;
  for (const TokenId id : all_tokens(stream)) {
    if (id == corpus.tokenizer().end_of_text()) {
      documents.insert(std::move(document));
      document.clear();
    } else {
      document += corpus.tokenizer().bytes_of(id);
    }
  }
  EXPECT_TRUE(document.empty());
  return documents;
}

TEST(Prepare, keeps_every_document_in_exactly_one_split) {
  TestFolder folder;
  const auto corpus = prepare(tiny(folder.path() / "p"));
  ASSERT_TRUE(corpus) << corpus.error().message;
  std::multiset<std::string> expected;
  const CorpusOptions options{.sources = {"builtin:tiny"}};
  ASSERT_TRUE(read_documents(options, *list_sources(options), [&](std::string_view text) {
    expected.emplace(text);
    return Result<void>{};
  }));
  auto found = documents_in(*corpus, corpus->train());
  const auto validation = documents_in(*corpus, corpus->validation());
  EXPECT_EQ(found.size(), corpus->manifest().train.documents);
  EXPECT_EQ(validation.size(), corpus->manifest().validation.documents);
  EXPECT_NEAR(static_cast<double>(validation.size()), 640 * 0.05, 5 * std::sqrt(640 * 0.05));
  found.insert(validation.begin(), validation.end());
  EXPECT_EQ(found, expected);
}

TEST(Prepare, states_the_entropy_of_the_training_tokens) {
  TestFolder folder;
  const auto corpus = prepare(tiny(folder.path()));
  std::map<TokenId, int> counts;
  const auto tokens = all_tokens(corpus->train());
  for (const TokenId id : tokens)
    ++counts[id];
  double nats = 0;  // cross entropy of the tokens under their own frequencies, token by token
  for (const TokenId id : tokens)
    nats -= std::log(static_cast<double>(counts[id]) / static_cast<double>(tokens.size()));
  EXPECT_NEAR(corpus->manifest().train_entropy, nats / static_cast<double>(tokens.size()), 1e-9);
  EXPECT_GT(corpus->manifest().train_entropy, 3);
}

TEST(Prepare, reuses_what_has_the_same_settings_and_sources) {
  TestFolder folder;
  using enum PrepareStage;
  EXPECT_THAT(stages_of(tiny(folder.path())),
              ::testing::ElementsAre(reading, counting, learning, encoding, done));
  EXPECT_THAT(stages_of(tiny(folder.path())), ::testing::ElementsAre(reused));
  auto other = tiny(folder.path());
  other.vocabulary_size = 401;
  EXPECT_THAT(stages_of(other),
              ::testing::ElementsAre(reading, counting, learning, encoding, done));
  EXPECT_THAT(stages_of(other), ::testing::ElementsAre(reused));
}

TEST(Prepare, what_others_may_need_is_not_replaced_and_the_difference_named) {
  TestFolder folder;
  auto options = tiny(folder.path() / "p");
  ASSERT_TRUE(prepare(options));
  const std::string fingerprint = prepare(options)->fingerprint();
  options.replace = false;
  EXPECT_EQ(prepare(options)->fingerprint(), fingerprint);
  const auto refusal = [&] {
    const auto prepared = prepare(options);
    if (prepared) return std::string("prepared");
    EXPECT_EQ(prepared.error().kind, ErrorKind::invalid);
    return prepared.error().message;
  };
  options.vocabulary_size = 401;
  EXPECT_THAT(refusal(), ::testing::HasSubstr("a vocabulary of 400 tokens, and 401 are asked for"));
  options = tiny(folder.path() / "p");
  options.replace = false;
  options.validation_fraction = 0.1;
  EXPECT_THAT(refusal(), ::testing::HasSubstr("its settings of [data] are others"));
  options.validation_fraction = tiny("").validation_fraction;
  const std::string other = folder.write("c/a.txt", "one two three");
  options.corpus.sources = {other};
  EXPECT_THAT(refusal(), ::testing::HasSubstr("it is made from 'builtin:tiny', and '" + other +
                                              "' is asked for"));
  EXPECT_EQ(open_prepared(folder.path() / "p")->fingerprint(), fingerprint);
  // What is no whole corpus binds nobody.
  std::filesystem::remove(folder.path() / "p" / "corpus.json");
  EXPECT_FALSE(open_prepared(folder.path() / "p"));
  EXPECT_TRUE(prepare(options));
}

TEST(Prepare, looks_at_the_contents_when_only_the_time_has_changed) {
  TestFolder folder;
  PrepareOptions options{
      .corpus = {.sources = {folder.write("c/a.txt", "one two three\ffour five six")}},
      .folder = folder.path() / "p",
      .vocabulary_size = 300};
  stages_of(options);
  folder.write("c/a.txt", "one two three\ffour five six");
  const struct timespec times[2] = {{1, 0}, {1, 0}};
  ::utimensat(AT_FDCWD, (folder.path() / "c/a.txt").c_str(), times, 0);
  EXPECT_THAT(stages_of(options), ::testing::ElementsAre(PrepareStage::reused));
  folder.write("c/a.txt", "one two three\ffour five sax");
  EXPECT_EQ(stages_of(options).back(), PrepareStage::done);
  folder.write("c/a.txt", "one two three\ffour five six seven");
  EXPECT_EQ(stages_of(options).back(), PrepareStage::done);
}

TEST(Prepare, gives_the_same_tokens_wherever_the_sources_lie) {
  TestFolder one, two;
  one.write("c/a.txt", "alpha beta\fgamma");
  two.write("d/e f/a.txt", "alpha beta\fgamma");
  const auto first = prepare({.corpus = {.sources = {(one.path() / "c").string()}},
                              .folder = one.path() / "p",
                              .vocabulary_size = 300});
  const auto second = prepare({.corpus = {.sources = {(two.path() / "d").string()}},
                               .folder = two.path() / "p",
                               .vocabulary_size = 300});
  EXPECT_EQ(first->fingerprint(), second->fingerprint());
  const auto other = prepare({.corpus = {.sources = {one.write("x.txt", "alpha beta\fgamma!")}},
                              .folder = one.path() / "q",
                              .vocabulary_size = 300});
  EXPECT_NE(first->fingerprint(), other->fingerprint());
}

TEST(Prepare, splits_a_single_document_so_that_neither_part_is_empty) {
  TestFolder folder;
  std::string text;
  for (int i = 0; i < 500; ++i)
    text += "This is line number " + std::to_string(i) + ".\n";
  const auto corpus = prepare({.corpus = {.sources = {folder.write("a.txt", text)}},
                               .folder = folder.path() / "p",
                               .validation_fraction = 0.1,
                               .vocabulary_size = 300});
  ASSERT_TRUE(corpus) << corpus.error().message;
  const std::string train = *documents_in(*corpus, corpus->train()).begin();
  const std::string validation = *documents_in(*corpus, corpus->validation()).begin();
  EXPECT_EQ(train + validation + "\n", text);
  EXPECT_NEAR(static_cast<double>(validation.size()), static_cast<double>(text.size()) * 0.1, 30);
}

TEST(Prepare, uses_a_given_tokenizer) {
  TestFolder folder;
  const auto first = prepare(tiny(folder.path() / "p"));
  auto options = tiny(folder.path() / "q");
  options.tokenizer = folder.path() / "p" / "tokenizer.json";
  options.vocabulary_size = 0;
  const auto second = prepare(options);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->fingerprint(), first->fingerprint());
}

TEST(Prepare, refuses_a_corpus_without_text_and_impossible_options) {
  TestFolder folder;
  auto options = tiny(folder.path() / "p");
  options.corpus.sources = {folder.write("a.txt", "\n")};
  EXPECT_THAT(error_of(options), HasSubstr("invalid: the corpus is empty"));
  options = tiny(folder.path() / "p");
  options.vocabulary_size = 256;
  EXPECT_THAT(error_of(options), HasSubstr("expected at least 257"));
  options = tiny(folder.path() / "p");
  options.validation_fraction = 0.6;
  EXPECT_THAT(error_of(options), HasSubstr("0 to 0.5, found 0.6"));
  options = tiny(folder.write("file", "x"));
  EXPECT_THAT(error_of(options), HasSubstr("file"));
}

TEST(Prepare, leaves_other_files_alone_and_no_text_behind) {
  TestFolder folder;
  folder.write("notes.txt", "mine");
  ASSERT_TRUE(prepare(tiny(folder.path())));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    names.insert(entry.path().filename().string());
  EXPECT_THAT(names,
              ::testing::ElementsAre("corpus.json", "notes.txt", "prepare.lock", "tokenizer.json",
                                     "train-00000.tokens", "use.lock", "validation-00000.tokens"));
}

TEST(Prepare, stops_on_request_and_begins_again) {
  TestFolder folder;
  for (const PrepareStage stage : {PrepareStage::reading, PrepareStage::counting,
                                   PrepareStage::learning, PrepareStage::encoding}) {
    std::stop_source stop;
    const auto corpus = prepare(
        tiny(folder.path()),
        [&](const PrepareProgress& now) {
          if (now.stage == stage) stop.request_stop();
        },
        stop.get_token());
    ASSERT_FALSE(corpus);
    EXPECT_EQ(corpus.error().kind, ErrorKind::aborted);
    EXPECT_THAT(open_prepared(folder.path()).error().message,
                HasSubstr("holds no prepared corpus"));
  }
  EXPECT_TRUE(prepare(tiny(folder.path())));
}

TEST(Prepare, killed_at_any_stage_leaves_nothing_that_looks_complete) {
  TestFolder folder, intact;
  const std::string expected = prepare(tiny(intact.path()))->fingerprint();
  for (const PrepareStage stage :
       {PrepareStage::reading, PrepareStage::counting, PrepareStage::learning,
        PrepareStage::encoding, PrepareStage::done}) {
    const fs::path prepared = folder.path() / std::string(to_string(stage));
    const pid_t child = ::fork();
    if (child == 0) {
      (void)prepare(tiny(prepared), [&](const PrepareProgress& now) {
        if (now.stage == stage) ::raise(SIGKILL);
      });
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const auto left = open_prepared(prepared, TokenStream::Verify::checksums);
    EXPECT_EQ(left.has_value(), stage == PrepareStage::done);
    if (left) {
      EXPECT_EQ(left->fingerprint(), expected);
    }
    const auto again = prepare(tiny(prepared));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->fingerprint(), expected);
  }
}

TEST(Prepare, by_several_processes_at_once_is_done_by_one_of_them) {
  TestFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 5; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool worked = false;
      const auto corpus = prepare(tiny(folder.path() / "p"), [&](const PrepareProgress& now) {
        worked |= now.stage == PrepareStage::encoding;
      });
      ::_exit(!corpus ? 2 : worked ? 1 : 0);
    }
    children.push_back(child);
  }
  int workers = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_NE(WEXITSTATUS(status), 2);
    workers += WEXITSTATUS(status);
  }
  EXPECT_EQ(workers, 1);
  EXPECT_TRUE(open_prepared(folder.path() / "p", TokenStream::Verify::checksums));
}

TEST(Prepare, does_not_replace_a_corpus_under_a_living_job) {
  TestFolder folder;
  auto other = tiny(folder.path());
  other.vocabulary_size = 300;
  {
    const auto in_use = prepare(tiny(folder.path()));
    EXPECT_THAT(
        error_of(other),
        HasSubstr("failed: '" + folder.path().string() +
                  "' holds a corpus of other settings or sources, and a living job uses it"));
    EXPECT_TRUE(prepare(tiny(folder.path())));
    EXPECT_TRUE(open_prepared(folder.path()));
  }
  EXPECT_EQ(error_of(other), "none");
}

TEST(Prepare, prepares_again_what_was_damaged) {
  TestFolder folder;
  for (const char* file :
       {"train-00000.tokens", "validation-00000.tokens", "tokenizer.json", "corpus.json"}) {
    ASSERT_TRUE(prepare(tiny(folder.path())));
    ASSERT_EQ(::truncate((folder.path() / file).c_str(), 100), 0);
    EXPECT_THAT(open_prepared(folder.path()).error().message, HasSubstr(file));
    EXPECT_EQ(stages_of(tiny(folder.path())).back(), PrepareStage::done) << file;
  }
  ASSERT_TRUE(fs::remove(folder.path() / "train-00000.tokens"));
  EXPECT_THAT(open_prepared(folder.path()).error().message, HasSubstr("train-00000.tokens"));
}

TEST(Prepare, opens_a_folder_that_may_only_be_read) {
  TestFolder folder;
  ASSERT_TRUE(prepare(tiny(folder.path() / "p")));
  fs::remove(folder.path() / "p" / "use.lock");
  ::chmod(folder.path().c_str(), 0755);
  ::chmod((folder.path() / "p").c_str(), 0555);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(3);
    ::_exit(prepare(tiny(folder.path() / "p")) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ::chmod((folder.path() / "p").c_str(), 0755);
}

CorpusManifest sample_manifest() {
  CorpusManifest manifest;
  manifest.settings = std::string(64, 'a');
  manifest.tokenizer = std::string(64, 'b');
  manifest.vocabulary = 400;
  manifest.sources = {{{"/with space/ñ %41 \xFF.txt", 12, -5}, std::string(64, 'c')}};
  manifest.counts = {1, 2, 3, 4, 5, 6};
  manifest.train = {
      1, 10, 30, {{"train-00000.tokens", 20, 200, 7}, {"train-00001.tokens", 10, 100, 1ULL << 63}}};
  manifest.train_entropy = 4.0 / 3.0;
  return manifest;
}

TEST(Manifest, comes_back_as_it_was_written) {
  const auto decoded = decode_manifest(encode_manifest(sample_manifest()), "corpus.json");
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, sample_manifest());
}

TEST(Manifest, is_refused_when_cut_anywhere_or_when_any_byte_is_another) {
  const std::string text = encode_manifest(sample_manifest());
  for (std::size_t at = 0; at < text.size(); ++at) {
    ASSERT_THAT(
        decode_manifest(std::string_view(text).substr(0, at), "corpus.json").error().message,
        HasSubstr("'corpus.json'"));
    for (const char flip : {'\x01', '\x10', '\x80'}) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      ASSERT_FALSE(decode_manifest(damaged, "corpus.json")) << at;
    }
  }
}

TEST(Manifest, does_not_lead_out_of_its_folder_or_lie_about_sums) {
  CorpusManifest manifest = sample_manifest();
  manifest.train.shards[0].file = "../secret";
  EXPECT_FALSE(decode_manifest(encode_manifest(manifest), "corpus.json"));
  manifest = sample_manifest();
  manifest.train.tokens = 31;
  EXPECT_FALSE(decode_manifest(encode_manifest(manifest), "corpus.json"));
  EXPECT_FALSE(decode_manifest("{\"format\":\"teson-corpus\",\"version\":1}", "corpus.json"));
}

}  // namespace
}  // namespace teson::data
