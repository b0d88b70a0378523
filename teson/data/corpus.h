#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"

namespace teson::data {

/// What is read, and how it falls apart into documents.
struct CorpusOptions {
  /// Files, folders (searched recursively for *.txt, *.text, *.md, *.jsonl and *.ndjson; hidden
  /// files and folders are left out), or "builtin:tiny". A file named here is JSON lines if it ends
  /// in .jsonl or .ndjson, plain text otherwise.
  std::vector<std::string> sources;
  /// The member of a JSON line that holds the text.
  std::string json_field = "text";
  /// Ends a document inside a plain text file. Empty: a file is one document.
  std::string separator = "\f";
  /// A longer document is cut into several: at the last line end before the bound, else between two
  /// characters. 1 KiB to 64 MiB.
  std::size_t document_bytes_max = 1 << 20;
  /// Bound of one JSON line; a longer one is refused, since it cannot be read in pieces.
  std::size_t json_line_bytes_max = 64 << 20;
};

/// The name of the corpus that the program makes itself.
inline constexpr std::string_view kBuiltinTiny = "builtin:tiny";

/// One file of a corpus. The builtin corpus is a source with the path "builtin:tiny", its version
/// as size and no time.
struct Source {
  std::string path;  ///< absolute
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const Source&) const = default;
};

/// Files in corpus folders that are not taken for text, by their names.
struct SkippedFiles {
  std::uint64_t count = 0;
  std::string example;  ///< the path of one of them
};

/// The files behind the options, in the order they are read: sources as given, inside a folder by
/// path, byte by byte; each once. Errors (invalid): no source given, missing, neither file nor
/// folder, a folder without any text file. Of a folder's files only .txt, .text, .md, .jsonl and
/// .ndjson are taken; hidden files and folders are passed over, all others counted in `skipped`.
Result<std::vector<Source>> list_sources(const CorpusOptions& options,
                                         SkippedFiles* skipped = nullptr);

struct CorpusCounts {
  std::uint64_t documents = 0;     ///< handed on
  std::uint64_t bytes = 0;         ///< of those
  std::uint64_t empty = 0;         ///< nothing left after stripping
  std::uint64_t duplicates = 0;    ///< equal to an earlier document, byte for byte
  std::uint64_t cut = 0;           ///< cuts made in documents longer than document_bytes_max
  std::uint64_t source_bytes = 0;  ///< read from files
  bool operator==(const CorpusCounts&) const = default;
};

/// Takes one document: valid UTF-8, line ends "\n", no byte order mark, no white space at either
/// end, never empty. The view is valid during the call. An error stops the reading and is returned
/// as it is.
using TakeDocument = std::function<Result<void>(std::string_view text)>;

/// Takes a source after its last document, with the SHA-256 of its bytes as read (hexadecimal).
using SourceDone = std::function<void(const Source& source, const std::string& sha256)>;

/// Reads the sources in order; documents equal to an earlier one are dropped (128-bit hash).
/// Memory: a few document_bytes_max or json_line_bytes_max, plus about 60 bytes a document, however
/// large files and lines are. Errors (invalid, naming the file): a NUL byte (not a text file),
/// bytes that are not UTF-8 (with the offset), a bad JSON line, one without the text field or too
/// long (with the line number). A corpus without any document is `invalid` too. Errors (failed):
/// the file cannot be opened or read.
Result<CorpusCounts> read_documents(const CorpusOptions& options,
                                    const std::vector<Source>& sources, const TakeDocument& take,
                                    const SourceDone& done = {});

/// The digest that decides about the split and about equality: two independent 64-bit hashes of the
/// text.
struct DocumentHash {
  std::uint64_t split = 0;  ///< uniform; compared with the split's threshold
  std::uint64_t other = 0;
  bool operator==(const DocumentHash&) const = default;
};
DocumentHash hash_document(std::string_view text);

/// A document belongs to the validation split if its hash lies below the threshold: the answer
/// depends on nothing but its text and the threshold.
struct SplitRule {
  std::uint64_t threshold = 0;
  bool is_validation(DocumentHash hash) const { return hash.split < threshold; }
};

struct DocumentSize {
  DocumentHash hash;
  std::uint64_t bytes = 0;
};

/// The threshold is fraction · 2^64. If this leaves validation with less than half of fraction ·
/// (all bytes), as it may with few documents, it is raised over the next smallest hashes until
/// validation has that much; the document with the largest hash always stays in training. So with
/// two documents or more neither split is empty, unless the fraction is 0: then there is no
/// validation. 0 <= fraction <= 0.5.
SplitRule split_rule(std::vector<DocumentSize> documents, double fraction);

/// Where to cut a corpus of a single document, which no hash can split: [0, cut) trains, the rest
/// validates. The last line end that leaves at least `fraction` of the bytes behind it, else the
/// last such boundary between two characters.
std::size_t split_point(std::string_view text, double fraction);

}  // namespace teson::data
