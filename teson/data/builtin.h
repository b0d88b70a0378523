#pragma once

#include <functional>
#include <string_view>

#include "teson/base/error.h"
#include "teson/data/corpus.h"

namespace teson::data {

/// "builtin:tiny": 640 short stories of a small grammar, about 200 kB, the same on every machine.
/// Whom a story is about, and what for, runs through it, so that a model which looks back predicts
/// it better than one that counts words.
Source builtin_source();
Result<void> builtin_documents(const std::function<Result<void>(std::string_view)>& take);

}  // namespace teson::data
