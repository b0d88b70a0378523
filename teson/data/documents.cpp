#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "teson/base/hash.h"
#include "teson/data/builtin.h"
#include "teson/data/corpus.h"
#include "teson/data/json_lines.h"
#include "teson/data/text_reader.h"
#include "teson/data/utf8.h"

namespace teson::data {
namespace {

struct HashOfHash {
  std::size_t operator()(DocumentHash hash) const { return hash.split; }
};

/// The end of the first piece of `text`, which is longer than `bytes_max`: behind a line end, else
/// between two characters.
std::size_t cut_at(std::string_view text, std::size_t bytes_max) {
  const std::size_t line_end = text.rfind('\n', bytes_max - 1);
  if (line_end != std::string_view::npos) return line_end + 1;
  return character_boundary(text, bytes_max);
}

class DocumentReader {
 public:
  DocumentReader(const CorpusOptions& options, const TakeDocument& take)
      : options_(options), take_(take), separator_(options.separator) {
    normalise_line_ends(separator_);
  }

  Result<std::string> read(const Source& source) {
    if (source.path == kBuiltinTiny) return read_builtin();
    const bool json_lines = source.path.ends_with(".jsonl") || source.path.ends_with(".ndjson");
    TESON_TRY(TextReader reader, TextReader::open(source, !json_lines));
    TESON_TRY_VOID(json_lines ? read_json_lines(reader, source.path) : read_plain(reader));
    counts_.source_bytes += reader.bytes_read();
    return reader.sha256();
  }

  const CorpusCounts& counts() const { return counts_; }

 private:
  Result<std::string> read_builtin() {
    Sha256 digest;
    TESON_TRY_VOID(builtin_documents([&](std::string_view text) {
      digest.update(text);
      counts_.source_bytes += text.size();
      return emit(text);
    }));
    return digest.finish();
  }

  Result<void> read_plain(TextReader& reader) {
    std::string pending;
    std::size_t searched = 0;  // no separator begins before this
    bool any = false;
    while (true) {
      TESON_TRY(const std::string_view piece, reader.next());
      if (piece.empty()) break;
      any = true;
      pending += piece;
      TESON_TRY_VOID(emit_documents(pending, searched));
    }
    if (any && pending.empty()) return {};
    if (pending.size() > options_.document_bytes_max) return emit_in_pieces(pending);
    return emit(pending);
  }

  /// Hands on what is certain, whatever comes after `pending`; keeps the rest.
  Result<void> emit_documents(std::string& pending, std::size_t& searched) {
    std::size_t begin = 0;
    while (true) {
      const std::string_view rest = std::string_view(pending).substr(begin);
      const std::size_t found =
          separator_.empty() ? std::string_view::npos : rest.find(separator_, searched);
      if (found <= options_.document_bytes_max && found != std::string_view::npos) {
        TESON_TRY_VOID(emit(rest.substr(0, found)));
        begin += found + separator_.size();
      } else if (rest.size() > options_.document_bytes_max + separator_.size()) {
        const std::size_t cut = cut_at(rest, options_.document_bytes_max);
        ++counts_.cut;
        TESON_TRY_VOID(emit(rest.substr(0, cut)));
        begin += cut;
      } else {
        searched = rest.size() < separator_.size() ? 0 : rest.size() - separator_.size() + 1;
        if (separator_.empty()) searched = 0;
        pending.erase(0, begin);
        return {};
      }
      searched = 0;
    }
  }

  Result<void> read_json_lines(TextReader& reader, const std::string& path) {
    std::string line;
    std::uint64_t number = 1;
    while (true) {
      TESON_TRY(std::string_view piece, reader.next());
      const bool at_end = piece.empty();
      while (true) {
        const std::size_t end = piece.find('\n');
        line += piece.substr(0, end);
        if (line.size() > options_.json_line_bytes_max) {
          return fail(ErrorKind::invalid,
                      fmt::format("'{}' line {}: longer than the {} bytes allowed; split its "
                                  "document over several lines",
                                  path, number, options_.json_line_bytes_max));
        }
        if (end == std::string_view::npos && !at_end) break;
        TESON_TRY_VOID(take_json_line(line, path, number));
        line.clear();
        ++number;
        if (at_end) return {};
        piece.remove_prefix(end + 1);
      }
    }
  }

  Result<void> take_json_line(std::string_view line, const std::string& path,
                              std::uint64_t number) {
    if (strip(line).empty()) return {};
    auto text = text_of_json_line(line, options_.json_field);
    if (!text) return fail(text.error().in(fmt::format("'{}' line {}", path, number)));
    normalise_line_ends(*text);
    return emit_in_pieces(*text);
  }

  Result<void> emit_in_pieces(std::string_view text) {
    while (text.size() > options_.document_bytes_max) {
      const std::size_t cut = cut_at(text, options_.document_bytes_max);
      ++counts_.cut;
      TESON_TRY_VOID(emit(text.substr(0, cut)));
      text.remove_prefix(cut);
    }
    return emit(text);
  }

  Result<void> emit(std::string_view text) {
    text = strip(text);
    if (text.empty()) {
      ++counts_.empty;
      return {};
    }
    if (!seen_.insert(hash_document(text)).second) {
      ++counts_.duplicates;
      return {};
    }
    ++counts_.documents;
    counts_.bytes += text.size();
    return take_(text);
  }

  const CorpusOptions& options_;
  const TakeDocument& take_;
  std::string separator_;
  CorpusCounts counts_;
  std::unordered_set<DocumentHash, HashOfHash> seen_;
};

Result<void> check_options(const CorpusOptions& options) {
  constexpr std::size_t kSeparatorMax = 1024;
  if (options.document_bytes_max < (1 << 10) || options.document_bytes_max > (64 << 20)) {
    return fail(ErrorKind::invalid,
                fmt::format("document_bytes_max must be 1 KiB to 64 MiB, found {}",
                            options.document_bytes_max));
  }
  if (options.separator.size() > kSeparatorMax) {
    return fail(ErrorKind::invalid,
                fmt::format("the document separator has {} bytes, at most {} are allowed",
                            options.separator.size(), kSeparatorMax));
  }
  return {};
}

}  // namespace

Result<CorpusCounts> read_documents(const CorpusOptions& options,
                                    const std::vector<Source>& sources, const TakeDocument& take,
                                    const SourceDone& done) {
  TESON_TRY_VOID(check_options(options));
  DocumentReader reader(options, take);
  for (const Source& source : sources) {
    TESON_TRY(const std::string sha256, reader.read(source));
    if (done) done(source, sha256);
  }
  if (reader.counts().documents == 0) {
    return fail(
        ErrorKind::invalid,
        fmt::format("the corpus is empty: no text in {} files of {} bytes together (first: '{}')",
                    sources.size(), reader.counts().source_bytes,
                    sources.empty() ? "" : sources[0].path));
  }
  return reader.counts();
}

}  // namespace teson::data
