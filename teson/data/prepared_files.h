#pragma once

namespace teson::data {

/// Names inside a prepared folder (docs/formats/tokens.md).
inline constexpr const char* kManifestFile = "corpus.json";
inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kPrepareLockFile = "prepare.lock";  ///< held by whoever prepares
inline constexpr const char* kUseLockFile =
    "use.lock";  ///< shared by readers, exclusive while files are replaced
inline constexpr const char* kShardSuffix = ".tokens";

}  // namespace teson::data
