#include <cmath>
#include <filesystem>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "teson/base/clock.h"
#include "teson/base/error.h"
#include "teson/base/file.h"
#include "teson/base/hash.h"
#include "teson/base/random.h"

namespace teson {
namespace {

TEST(Error, context_is_put_before_the_message_and_keeps_the_kind) {
  const Error error = Error{ErrorKind::timed_out, "no answer"}.in("lighthouse");
  EXPECT_EQ(error.describe(), "timed_out: lighthouse: no answer");
}

Result<int> half(int value) {
  if (value % 2 != 0) return fail(ErrorKind::invalid, "odd");
  return value / 2;
}
Result<int> quarter(int value) {
  TESON_TRY(const int once, half(value));
  return half(once);
}

TEST(Error, try_returns_the_first_failure) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).error().message, "odd");
}

// FIPS 180-2, appendix B.1.
TEST(Hash, sha256_of_abc_is_the_published_one) {
  Sha256 sha;
  sha.update(std::string_view("a"));
  sha.update(std::string_view("bc"));
  EXPECT_EQ(sha.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// RFC 4231, test case 2.
TEST(Hash, hmac_sha256_matches_the_rfc) {
  const std::string_view data = "what do ya want for nothing?";
  const auto digest = hmac_sha256("Jefe", std::as_bytes(std::span(data)));
  EXPECT_EQ(static_cast<int>(digest[0]), 0x5b);
  EXPECT_EQ(static_cast<int>(digest[31]), 0x43);
}

TEST(Random, numbers_are_a_function_of_the_keys) {
  CounterRandom a({1, 2, 3});
  CounterRandom b({1, 2, 3});
  CounterRandom other({1, 3, 2});
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), other.next());
}

TEST(Random, mean_and_variance_of_normal_are_zero_and_one) {
  CounterRandom random({7});
  double sum = 0;
  double squares = 0;
  constexpr int count = 200000;
  for (int i = 0; i < count; ++i) {
    const double value = random.normal();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / count, 0.0, 5.0 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1.0, 0.02);
}

TEST(Random, below_is_uniform) {
  CounterRandom random({11});
  int counts[6] = {};
  for (int i = 0; i < 60000; ++i)
    ++counts[random.below(6)];
  for (const int count : counts)
    EXPECT_NEAR(count, 10000, 500);
}

class FileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("teson-base-" + std::to_string(entropy64()));
};

TEST_F(FileTest, atomic_write_replaces_and_leaves_nothing_else) {
  const auto path = folder_ / "a file";
  ASSERT_TRUE(write_file_atomic(path, "one"));
  ASSERT_TRUE(write_file_atomic(path, "two"));
  EXPECT_EQ(*read_file(path), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, a_full_disk_is_named_and_leaves_no_temporary_file) {
  const auto written = write_file_atomic("/dev/full/x", "data");
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("/dev/full/x"), std::string::npos);
}

TEST_F(FileTest, a_missing_file_is_named) {
  const auto contents = read_file(folder_ / "missing");
  ASSERT_FALSE(contents);
  EXPECT_NE(contents.error().message.find("missing"), std::string::npos);
}

TEST_F(FileTest, what_is_no_regular_file_is_refused_without_waiting) {
  const auto pipe = folder_ / "pipe";
  const auto loop = folder_ / "loop";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", loop);
  for (const int flags : {O_RDONLY, O_RDWR, O_WRONLY | O_CREAT | O_APPEND}) {
    for (const auto& path : {pipe, folder_, std::filesystem::path("/dev/null")}) {
      const auto opened = open_file(path, flags);
      ASSERT_FALSE(opened) << path << " " << flags;
      EXPECT_EQ(opened.error().kind, ErrorKind::invalid) << opened.error().message;
      EXPECT_NE(opened.error().message.find("expected a regular file"), std::string::npos);
    }
  }
  EXPECT_TRUE(open_file(folder_, O_RDONLY | O_DIRECTORY));
  EXPECT_EQ(read_file(loop).error().kind, ErrorKind::invalid);
  EXPECT_EQ(read_file(folder_ / std::string(300, 'x')).error().kind, ErrorKind::invalid);
}

TEST_F(FileTest, too_large_a_file_is_refused) {
  ASSERT_TRUE(write_file_atomic(folder_ / "big", std::string(1000, 'x')));
  EXPECT_EQ(read_file(folder_ / "big", 999).error().kind, ErrorKind::invalid);
}

}  // namespace
}  // namespace teson
