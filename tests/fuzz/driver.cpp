// Runs a fuzz target without libFuzzer, the same inputs each time:
//
//   fuzz_NAME [--runs N] [--seed S] [CORPUS_FOLDER]
//
// First every file of the corpus and every truncation of it (of a long one the first and last
// 4096), then N inputs that a seeded generator makes of them. `make fuzz` searches with libFuzzer.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;
using Generator = std::mt19937_64;

constexpr std::size_t input_bytes_max = 4096;
constexpr std::size_t truncations_max = 4096;

void run(const Input& input, std::size_t size) {
  // A copy of exactly that size, so that a sanitizer sees the first byte beyond it.
  const Input exact(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(size));
  (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::vector<Input> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Input> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

std::uint8_t byte_of(Generator& random) {
  // The ends of the range are where lengths and counts go wrong.
  constexpr std::uint8_t ends[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
  return random() % 2 == 0 ? ends[random() % std::size(ends)] : static_cast<std::uint8_t>(random());
}

void change(Input& input, const std::vector<Input>& corpus, Generator& random) {
  const auto place = [&] { return input.empty() ? 0 : random() % input.size(); };
  switch (random() % 6) {
    case 0:
      if (!input.empty()) input[place()] = byte_of(random);
      break;
    case 1:
      if (!input.empty()) input[place()] ^= static_cast<std::uint8_t>(1U << random() % 8);
      break;
    case 2:
      input.resize(place());
      break;
    case 3:
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(place()), random() % 16 + 1,
                   byte_of(random));
      break;
    case 4:
      if (!input.empty()) {
        const auto begin = place();
        const auto end = std::min<std::size_t>(input.size(), begin + random() % 16 + 1);
        input.erase(input.begin() + static_cast<std::ptrdiff_t>(begin),
                    input.begin() + static_cast<std::ptrdiff_t>(end));
      }
      break;
    default: {
      const Input& other = corpus[random() % corpus.size()];
      input.resize(place());
      input.insert(
          input.end(),
          other.begin() + static_cast<std::ptrdiff_t>(other.empty() ? 0 : random() % other.size()),
          other.end());
    }
  }
  input.resize(std::min(input.size(), input_bytes_max));
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = 1000;
  std::uint64_t seed = 1;
  std::vector<Input> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--runs" && i + 1 < argc) {
      runs = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      corpus = read_corpus(argv[i]);
    }
  }
  for (const Input& input : corpus) {
    for (std::size_t size = 0; size <= input.size(); ++size) {
      if (size < truncations_max || size + truncations_max > input.size()) run(input, size);
    }
  }
  const std::size_t kept = corpus.size();
  corpus.emplace_back();
  corpus.emplace_back(64, 0);
  Generator random(seed);
  for (std::uint64_t i = 0; i < runs; ++i) {
    Input input = corpus[random() % corpus.size()];
    for (auto changes = random() % 8 + 1; changes > 0; --changes)
      change(input, corpus, random);
    run(input, input.size());
  }
  std::printf(
      "%zu files of the corpus with their truncations, %llu inputs of seed %llu: no fault\n", kept,
      static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
}
