#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <stdlib.h>

namespace teson::job {

/// A folder for one test, removed with it. For tests only.
class TestFolder {
 public:
  TestFolder() {
    char path[] = "/tmp/teson-test-XXXXXX";
    if (::mkdtemp(path) != nullptr) path_ = path;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace teson::job
