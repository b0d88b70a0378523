#pragma once

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "teson/base/random.h"
#include "teson/checkpoint/checkpoint.h"
#include "teson/checkpoint/disk.h"

/// What the tests of this folder share.
namespace teson::testing {

/// A folder of its own, removed at the end; in memory where there is a place for it, as these tests
/// fsync thousands of times.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = ::access(memory.c_str(), W_OK) == 0;
    path_ = (usable ? memory : std::filesystem::temp_directory_path()) /
            fmt::format("teson-test-{:016x}", entropy64());
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Calls `before(n)` and `after(n)` around the n-th change; `before` may refuse it with an errno.
class HookedDisk final : public Disk {
 public:
  std::function<int(int)> before = [](int) { return 0; };
  std::function<void(int)> after = [](int) {};
  /// At this change, a write stops half way and the process dies.
  int tear_at = -1;
  std::uint64_t free = ~0ULL;
  int changes = 0;

  Result<std::uint64_t> free_bytes(const std::filesystem::path&) override { return free; }
  Result<void> make_folder(const std::filesystem::path& path) override {
    return around("mkdir", [&] { return disk_.make_folder(path); });
  }
  Result<Fd> create(const std::filesystem::path& path) override {
    return around("open", [&] { return disk_.create(path); });
  }
  Result<void> write(int fd, std::span<const std::byte> bytes,
                     const std::filesystem::path& path) override {
    return around("write", [&] {
      if (changes == tear_at) {
        (void)disk_.write(fd, bytes.first(bytes.size() / 2), path);
        ::raise(SIGKILL);
      }
      return disk_.write(fd, bytes, path);
    });
  }
  Result<void> sync(int fd, const std::filesystem::path& path) override {
    return around("fsync", [&] { return disk_.sync(fd, path); });
  }
  Result<void> sync_folder(const std::filesystem::path& path) override {
    return around("fsync", [&] { return disk_.sync_folder(path); });
  }
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return around("rename", [&] { return disk_.rename(from, to); });
  }
  Result<void> remove(const std::filesystem::path& path) override {
    return around("remove", [&] { return disk_.remove(path); });
  }

 private:
  template <typename Change>
  std::invoke_result_t<Change> around(std::string_view what, Change change) {
    const int number = changes;
    if (const int code = before(number); code != 0) {
      ++changes;
      return fail_errno(what, code);
    }
    auto result = change();
    after(number);
    ++changes;
    return result;
  }

  SystemDisk disk_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void spill(const std::filesystem::path& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A small training state whose every number depends on its step.
struct SmallState {
  CheckpointMeta meta;
  std::vector<float> weights, moments;

  explicit SmallState(std::uint64_t step, std::uint64_t incarnation = 1,
                      std::size_t elements = 70) {
    meta = {.incarnation = incarnation,
            .epoch = 4,
            .step = step,
            .chain_hash = fmt::format("{:016x}", step * 77),
            .config_text = "[train]\nsteps = 100  # \"quoted\", ä\n",
            .plan_hash = "aa",
            .tokenizer_hash = "bb",
            .seed = ~0ULL,
            .counters = {{"tokens", 1LL << 60}, {"skipped", 0}},
            .parameters = {{"embed.weight", 0, 60, {6, 10}}, {"norm.weight", 60, 10, {10}}}};
    CounterRandom random({step, incarnation});
    for (std::size_t i = 0; i < elements; ++i) {
      weights.push_back(static_cast<float>(random.normal()));
      moments.push_back(static_cast<float>(random.uniform()));
    }
  }
  std::vector<CheckpointSection> sections() const {
    return {float_section("weights", weights), float_section("adam_m", moments)};
  }
};

/// Small enough that one checkpoint has several files of several blocks.
inline CheckpointOptions small_options() {
  return {.shard_bytes = 160, .block_bytes = 64};
}

}  // namespace teson::testing
