#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "teson/base/error.h"
#include "teson/job/config.h"

namespace CLI {
class App;
}

namespace teson::apps {

/// How the program ends. Documented in README and --help.
enum ExitStatus { kDone = 0, kFailed = 1, kUserError = 2, kInterrupted = 130 };

/// In the environment of `lighthouse` and `train`: the secret of a run, 64 hexadecimal digits. Not
/// on the command line, where every user of the machine could read it.
inline constexpr const char* kSecretVariable = "TESON_JOB_SECRET";

/// Each adds one subcommand; running it sets `status` to an ExitStatus.
void add_train(CLI::App& app, int& status);
void add_lighthouse(CLI::App& app, int& status);
void add_generate(CLI::App& app, int& status);
void add_prepare(CLI::App& app, int& status);
void add_config(CLI::App& app, int& status);
void add_host(CLI::App& app, int& status);
void add_ps(CLI::App& app, int& status);
void add_logs(CLI::App& app, int& status);
void add_trace(CLI::App& app, int& status);

/// Prints "teson: …" to standard error and gives the exit status that belongs to the kind:
/// `invalid` is the user's mistake.
int report(const Error& error);

/// To standard error, as it is. A closed or full one is no reason to stop.
void tell(std::string_view text);

/// The configuration of a command line. Whatever is wrong with it, a file that is not there
/// included, is `invalid`: the user's to mend.
Result<job::Config> load_job(const std::string& file, const std::vector<std::string>& overrides);

/// The option --set of a subcommand: one key=value each time, repeatable.
void add_overrides(CLI::App& command, std::vector<std::string>& overrides);

/// What to add to an error that a limit of memory may be behind; empty where there is none.
std::string memory_limit_advice();

/// The folder of the running program, where teson and teson-worker lie side by side.
std::filesystem::path program_folder();

/// Replaces this process by `teson-worker arguments…`. Returns only on failure.
Error exec_worker(const std::vector<std::string>& arguments);

}  // namespace teson::apps
