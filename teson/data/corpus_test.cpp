#include "teson/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/data/test_folder.h"
#include "teson/data/utf8.h"

namespace teson::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Reading {
  std::vector<std::string> documents;
  CorpusCounts counts;
};

Result<Reading> read_all(CorpusOptions options) {
  Reading reading;
  TESON_TRY(const auto sources, list_sources(options));
  TESON_TRY(reading.counts, read_documents(options, sources, [&](std::string_view text) {
              reading.documents.emplace_back(text);
              return Result<void>{};
            }));
  return reading;
}

Result<Reading> read_one(const std::string& path) {
  return read_all({.sources = {path}});
}

std::string message_of(const CorpusOptions& options) {
  const auto reading = read_all(options);
  return reading ? "no error" : reading.error().describe();
}

TEST(Corpus, a_plain_file_is_one_document_and_form_feeds_split_it) {
  TestFolder folder;
  EXPECT_THAT(read_one(folder.write("a.txt", "one\ntwo\n"))->documents, ElementsAre("one\ntwo"));
  EXPECT_THAT(read_one(folder.write("b.txt", "one\ftwo\f\fthree\f"))->documents,
              ElementsAre("one", "two", "three"));
}

TEST(Corpus, a_configured_separator_may_have_several_bytes) {
  TestFolder folder;
  const std::string path = folder.write("a.txt", "one\r\n---\r\ntwo\n---\nthree --- four");
  EXPECT_THAT(read_all({.sources = {path}, .separator = "\r\n---\r\n"})->documents,
              ElementsAre("one", "two", "three --- four"));
  EXPECT_THAT(read_all({.sources = {path}, .separator = ""})->documents.size(), 1);
}

TEST(Corpus, carriage_returns_and_byte_order_marks_are_normalised) {
  TestFolder folder;
  EXPECT_THAT(
      read_one(folder.write("a.txt", "\xEF\xBB\xBFone\r\ntwo\rthree\r\n\r\nfour\r"))->documents,
      ElementsAre("one\ntwo\nthree\n\nfour"));
  EXPECT_THAT(
      read_one(
          folder.write("b.jsonl", "\xEF\xBB\xBF{\"text\": \"a\\r\\nb\"}\r\n\r\n{\"text\": \"c\"}"))
          ->documents,
      ElementsAre("a\nb", "c"));
}

TEST(Corpus, a_carriage_return_at_the_end_of_a_read_joins_its_line_feed) {
  TestFolder folder;
  for (const std::size_t length : {(256 << 10) - 1, 256 << 10}) {
    const std::string line(length, 'x');
    EXPECT_THAT(read_one(folder.write("a.txt", line + "\r\nend"))->documents,
                ElementsAre(line + "\nend"));
  }
}

TEST(Corpus, a_character_across_two_reads_is_whole) {
  TestFolder folder;
  for (std::size_t before = (256 << 10) - 4; before <= 256 << 10; ++before) {
    const std::string text = std::string(before, 'x') + "\xF0\x9F\x90\x99!";
    EXPECT_THAT(read_one(folder.write("a.txt", text))->documents, ElementsAre(text)) << before;
  }
}

TEST(Corpus, a_missing_file_is_named) {
  EXPECT_THAT(message_of({.sources = {"/nowhere/a b.txt"}}),
              HasSubstr("corpus '/nowhere/a b.txt' does not exist"));
  EXPECT_THAT(message_of({.sources = {}}), HasSubstr("no corpus"));
  EXPECT_THAT(message_of({.sources = {""}}), HasSubstr("without a name"));
  EXPECT_THAT(message_of({.sources = {"builtin:huge"}}), HasSubstr("'builtin:tiny'"));
  EXPECT_THAT(message_of({.sources = {"/dev/null"}}), HasSubstr("neither a file nor a folder"));
}

TEST(Corpus, an_empty_corpus_says_so) {
  TestFolder folder;
  EXPECT_THAT(message_of({.sources = {folder.write("a.txt", "")}}),
              HasSubstr("the corpus is empty"));
  EXPECT_THAT(message_of({.sources = {folder.write("b.txt", " \n\t\f \r\n")}}),
              HasSubstr("the corpus is empty"));
  EXPECT_THAT(message_of({.sources = {folder.write("c.jsonl", "\n\n")}}),
              HasSubstr("the corpus is empty"));
  TestFolder nothing;
  EXPECT_THAT(message_of({.sources = {nothing.path().string()}}), HasSubstr("holds no text"));
}

TEST(Corpus, a_binary_file_is_refused_with_the_offset_of_its_first_nul) {
  TestFolder folder;
  const std::string path = folder.write("a.txt", std::string(300'000, 'x') + '\0' + "y");
  EXPECT_THAT(message_of({.sources = {path}}),
              HasSubstr("'" + path + "' is not a text file: a NUL byte at offset 300000"));
  EXPECT_THAT(message_of({.sources = {folder.write("b.txt", std::string_view("\xFF\xFE"
                                                                             "a\0b\0",
                                                                             6))}}),
              HasSubstr("UTF-16"));
}

TEST(Corpus, bytes_that_are_not_utf8_are_refused_with_their_offset) {
  TestFolder folder;
  // Latin-1; overlong; surrogate; beyond U+10FFFF; cut off at the end.
  for (const std::string_view bad :
       {"\xE9t\xE9", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    const std::string path = folder.write("a.txt", std::string(262'143, 'x') + std::string(bad));
    EXPECT_THAT(message_of({.sources = {path}}), HasSubstr("not UTF-8: byte 0x")) << bad.size();
    EXPECT_THAT(message_of({.sources = {path}}), HasSubstr("at offset 262143"));
  }
  EXPECT_THAT(message_of({.sources = {folder.write("b.jsonl", "{\"text\": \"\xE9\"}")}}),
              HasSubstr("at offset 10"));
}

TEST(Corpus, one_long_line_is_cut_between_characters_without_loss) {
  TestFolder folder;
  std::string line;
  for (int i = 0; line.size() < 300'000; ++i)
    line += "ñ" + std::to_string(i);
  const auto reading =
      read_all({.sources = {folder.write("a.txt", line)}, .document_bytes_max = 4096});
  ASSERT_TRUE(reading) << reading.error().message;
  std::string joined;
  for (const std::string& document : reading->documents) {
    EXPECT_LE(document.size(), 4096u);
    EXPECT_GE(document.size(), 4000u * (&document != &reading->documents.back()));
    EXPECT_EQ(valid_utf8_prefix(document), document.size());
    joined += document;
  }
  EXPECT_EQ(joined, line);
  EXPECT_EQ(reading->counts.cut + 1, reading->counts.documents);
}

TEST(Corpus, long_documents_are_cut_at_line_ends_wherever_reads_fall) {
  TestFolder folder;
  std::string text;
  for (int i = 0; i < 60'000; ++i)
    text += "line number " + std::to_string(i) + "\n";
  const auto reading =
      read_all({.sources = {folder.write("a.txt", text)}, .document_bytes_max = 100'000});
  std::string joined;
  for (const std::string& document : reading->documents) {
    EXPECT_TRUE(document.starts_with("line number"));
    EXPECT_LE(document.size(), 100'000u);
    joined += document + "\n";
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(reading->counts.documents, (text.size() + 99'999) / 100'000);
}

TEST(Corpus, a_huge_line_is_read_in_bounded_memory) {
  TestFolder folder;
  const std::string path = folder.write("a.txt", std::string(96 << 20, 'x'));
  const pid_t child = ::fork();
  if (child == 0) {
    struct rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const bool read = read_all({.sources = {path}, .document_bytes_max = 64 << 10}).has_value();
    ::getrusage(RUSAGE_SELF, &after);
    ::_exit(!read ? 1 : after.ru_maxrss - before.ru_maxrss > 16 << 10 ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Corpus, a_json_line_beyond_the_bound_is_refused_with_its_number) {
  TestFolder folder;
  const std::string path = folder.write(
      "a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"" + std::string(5'000, 'y') + "\"}\n");
  EXPECT_THAT(message_of({.sources = {path}, .json_line_bytes_max = 4096}),
              HasSubstr("line 2: longer than the 4096 bytes"));
}

TEST(Corpus, json_lines_give_the_named_member) {
  TestFolder folder;
  const std::string path =
      folder.write("a.jsonl", "{\"text\": \"no\", \"body\": \"caf\\u00e9\"}\n{\"body\":\"two\"}\n");
  EXPECT_THAT(read_all({.sources = {path}, .json_field = "body"})->documents,
              ElementsAre("café", "two"));
  EXPECT_THAT(message_of({.sources = {path}}),
              HasSubstr("line 2: expected a member 'text', found 'body'"));
}

TEST(Corpus, a_bad_json_line_is_named_by_file_and_number) {
  TestFolder folder;
  for (const std::string_view bad :
       {"{\"text\": \"open", "[1]", "{\"text\": 3}", "nonsense", "{\"text\":\"\\ud800\"}"}) {
    const std::string path =
        folder.write("a.jsonl", "{\"text\":\"x\"}\n\n" + std::string(bad) + "\n");
    EXPECT_THAT(message_of({.sources = {path}}),
                HasSubstr("invalid: '" + path + "' line 3: expected"))
        << bad;
  }
  const std::string open = folder.write("c.jsonl", "{\"text\": \"" + std::string(200'000, 'x'));
  EXPECT_LT(message_of({.sources = {open}}).size(), 1'000u);
  const std::string deep = folder.write("b.jsonl", std::string(200'000, '['));
  EXPECT_THAT(message_of({.sources = {deep}}), HasSubstr("line 1"));
}

TEST(Corpus, duplicates_and_empty_documents_are_dropped_and_counted) {
  TestFolder folder;
  folder.write("c/a.txt", "one\f two \f\f\none\n");
  folder.write("c/b.jsonl", "{\"text\": \"two\"}\n{\"text\": \" \"}\n{\"text\": \"three\"}\n");
  const auto reading = read_one((folder.path() / "c").string());
  EXPECT_THAT(reading->documents, ElementsAre("one", "two", "three"));
  EXPECT_EQ(reading->counts.duplicates, 2u);
  EXPECT_EQ(reading->counts.empty, 2u);
  EXPECT_EQ(reading->counts.documents, 3u);
  EXPECT_EQ(reading->counts.bytes, 11u);
}

TEST(Corpus, folders_are_read_in_order_of_path_and_foreign_files_left_out) {
  TestFolder folder;
  folder.write("c/10.txt", "third");
  folder.write("c/9.txt", "fifth");
  folder.write("c/1 with space.txt", "first");
  folder.write("c/1/deep.md", "second");
  folder.write("c/9/Ünïcödé 日本語.txt", "fourth");
  folder.write("c/MANIFEST", "no");
  folder.write("c/image.png", "no");
  folder.write("c/.hidden.txt", "no");
  folder.write("c/.git/a.txt", "no");
  const auto reading = read_one((folder.path() / "c").string());
  ASSERT_TRUE(reading) << reading.error().message;
  EXPECT_THAT(reading->documents, ElementsAre("first", "second", "third", "fifth", "fourth"));
  SkippedFiles skipped;
  ASSERT_TRUE(list_sources({.sources = {(folder.path() / "c").string()}}, &skipped));
  EXPECT_EQ(skipped.count, 2u);  // hidden ones are not counted
  EXPECT_THAT(skipped.example, ::testing::AnyOf(::testing::EndsWith("/MANIFEST"),
                                                ::testing::EndsWith("/image.png")));
}

TEST(Corpus, a_source_named_twice_is_read_once) {
  TestFolder folder;
  const std::string path = folder.write("c/a.txt", "one");
  const auto sources = list_sources({.sources = {path, (folder.path() / "c").string(),
                                                 (folder.path() / "c/../c/a.txt").string()}});
  EXPECT_EQ(sources->size(), 1u);
}

TEST(Corpus, an_unreadable_file_is_named) {
  TestFolder folder;
  const std::string path = folder.write("a.txt", "one");
  ::chmod(path.c_str(), 0);
  ::chmod(folder.path().c_str(), 0755);
  const pid_t child = ::fork();  // as somebody whom the permissions hold back, should this be root
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(3);
    const std::string message = message_of({.sources = {path}});
    ::_exit(message.find("open '" + path + "': Permission denied") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Corpus, a_refusal_of_the_taker_ends_the_reading) {
  TestFolder folder;
  const CorpusOptions options{.sources = {folder.write("a.txt", "one\ftwo")}};
  int taken = 0;
  const auto result =
      read_documents(options, *list_sources(options), [&](std::string_view) -> Result<void> {
        ++taken;
        return fail(ErrorKind::aborted, "enough");
      });
  EXPECT_EQ(result.error(), (Error{ErrorKind::aborted, "enough"}));
  EXPECT_EQ(taken, 1);
}

TEST(Corpus, the_builtin_corpus_is_about_200_kB_of_distinct_stories) {
  const auto reading = read_one("builtin:tiny");
  EXPECT_EQ(reading->counts.documents, 640u);
  EXPECT_EQ(reading->counts.duplicates, 0u);
  EXPECT_GT(reading->counts.bytes, 180'000u);
  EXPECT_LT(reading->counts.bytes, 260'000u);
  EXPECT_EQ(read_one("builtin:tiny")->documents, reading->documents);
}

TEST(Split, takes_about_the_fraction_and_depends_on_the_text_alone) {
  std::vector<DocumentSize> documents;
  for (int i = 0; i < 20'000; ++i)
    documents.push_back({hash_document("document " + std::to_string(i)), 100});
  const SplitRule rule = split_rule(documents, 0.05);
  int held = 0;
  for (const DocumentSize& document : documents)
    held += rule.is_validation(document.hash);
  EXPECT_NEAR(held, 1000, 5 * 31);  // five standard deviations of the binomial
  std::vector<DocumentSize> other(documents.begin() + 7'000, documents.end());
  EXPECT_EQ(split_rule(other, 0.05).threshold, rule.threshold);
}

TEST(Split, is_empty_on_neither_side_from_two_documents_on) {
  for (int seed = 0; seed < 200; ++seed) {
    for (int count = 2; count < 12; ++count) {
      std::vector<DocumentSize> documents;
      for (int i = 0; i < count; ++i)
        documents.push_back({hash_document(std::to_string(seed * 100 + i)), 10});
      for (const double fraction : {1e-9, 0.05, 0.5}) {
        const SplitRule rule = split_rule(documents, fraction);
        int held = 0;
        for (const DocumentSize& document : documents)
          held += rule.is_validation(document.hash);
        EXPECT_GE(held, 1) << seed << " " << count;
        EXPECT_LT(held, count) << seed << " " << count;
      }
    }
  }
}

TEST(Split, of_fraction_zero_has_no_validation) {
  EXPECT_EQ(split_rule({{hash_document("a"), 1}, {hash_document("b"), 1}}, 0).threshold, 0u);
}

TEST(Split, of_a_single_document_falls_on_a_line_end_that_leaves_the_fraction) {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += "123456789\n";
  EXPECT_EQ(split_point(text, 0.1), 900u);
  EXPECT_EQ(split_point(text, 0.101), 890u);
  EXPECT_EQ(split_point("ññññ", 0.3), 4u);  // of 8 bytes, at most 5, between two characters
  EXPECT_EQ(split_point("x", 0.5), 0u);
}

TEST(Utf8, follows_the_table_of_rfc_3629_for_every_two_bytes_and_every_three_of_a_kind) {
  const auto decodes = [](unsigned point) {
    std::string text;
    if (point < 0x80)
      text = {static_cast<char>(point)};
    else if (point < 0x800)
      text = {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
    else if (point < 0x10000)
      text = {static_cast<char>(0xE0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 63)),
              static_cast<char>(0x80 | (point & 63))};
    else
      text = {static_cast<char>(0xF0 | point >> 18), static_cast<char>(0x80 | (point >> 12 & 63)),
              static_cast<char>(0x80 | (point >> 6 & 63)), static_cast<char>(0x80 | (point & 63))};
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      if (point < 0xD800 || (point > 0xDFFF && point < 0x110000)) {
        EXPECT_EQ(valid_utf8_prefix(text.substr(0, cut)), 0u);
        EXPECT_TRUE(is_incomplete_utf8(text.substr(0, cut)));
      }
    }
    return valid_utf8_prefix(text) == text.size();
  };
  unsigned accepted = 0;
  for (unsigned point = 0; point < 0x110400; ++point)
    accepted += decodes(point);
  EXPECT_EQ(accepted, 0x110000u - 0x800u);
}

}  // namespace
}  // namespace teson::data
