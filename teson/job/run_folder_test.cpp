#include "teson/job/run_folder.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "teson/base/file.h"
#include "teson/job/socket_folder.h"
#include "teson/job/test_folder.h"

namespace teson::job {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    options_.socket_base = folder_.path();
    config_.data.vocabulary = 512;
  }
  Result<RunFolder> open() { return RunFolder::open(dir_, config_, options_); }
  std::string refusal() {
    const auto opened = open();
    return opened ? "opened" : opened.error().describe();
  }
  int socket_folders() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      count += entry.path().filename().string().rfind("teson-", 0) == 0;
    return count;
  }
  static unsigned mode(const fs::path& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
  }

  TestFolder folder_;
  fs::path dir_ = folder_.path() / "runs" / "a";
  Config config_;
  RunFolderOptions options_;
};

TEST_F(RunFolderTest, a_new_folder_holds_everything_a_run_needs) {
  std::string sockets;
  {
    const auto run = open();
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_FALSE(run->existed());
    const RunPaths& paths = run->paths();
    EXPECT_EQ(load_config(paths.config())->data.vocabulary, 512);
    for (const fs::path& each : {paths.checkpoints(), paths.logs(), paths.faults()})
      EXPECT_TRUE(fs::is_directory(each));
    EXPECT_EQ(paths.worker_log(3), paths.logs() / "worker-3.log");
    EXPECT_EQ(run->secret().size(), 64u);
    EXPECT_EQ(read_secret(paths.secret()).value(), run->secret());
    EXPECT_EQ(mode(paths.secret()), 0600u);
    sockets = run->socket_folder().string();
    EXPECT_EQ(mode(sockets), 0700u);
    EXPECT_LT(sockets.size() + 1 + 40, 108u);
    EXPECT_EQ(read_file(paths.sockets_file()).value() + "/s", sockets);
    EXPECT_TRUE(paths.dir.is_absolute());
  }
  EXPECT_FALSE(fs::exists(sockets));
  EXPECT_FALSE(fs::exists(dir_ / "sockets"));
}

TEST_F(RunFolderTest, the_same_run_goes_on_with_its_secret_and_its_files) {
  std::string secret;
  {
    const auto run = open();
    secret = run->secret();
    std::ofstream(run->paths().metrics()) << "kept";
  }
  config_.cluster.replicas = 4;  // not what makes another run
  const auto run = open();
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_TRUE(run->existed());
  EXPECT_EQ(run->secret(), secret);
  EXPECT_EQ(read_file(run->paths().metrics()).value(), "kept");
  EXPECT_EQ(load_config(run->paths().config())->cluster.replicas, 4);
}

TEST_F(RunFolderTest, a_living_run_keeps_others_out_and_is_named) {
  const auto run = open();
  ASSERT_TRUE(run);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("overloaded"), HasSubstr("in use by a living run, pid " +
                                                                  std::to_string(::getpid()))));
  EXPECT_TRUE(fs::exists(run->socket_folder()));
}

TEST_F(RunFolderTest, a_killed_run_lets_go_and_its_sockets_are_cleaned) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto run = open();
    if (run) {
      std::ofstream(run->socket_folder() / "worker-0.sock") << "x";
      std::ofstream(folder_.path() / "ready").close();
      ::pause();
    }
    ::_exit(1);
  }
  for (int i = 0; i < 500 && !fs::exists(folder_.path() / "ready"); ++i)
    ::usleep(10'000);
  ASSERT_THAT(refusal(), HasSubstr("pid " + std::to_string(child)));
  EXPECT_EQ(socket_folders(), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(socket_folders(), 1);
  const auto run = open();
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_TRUE(run->existed());
  EXPECT_EQ(socket_folders(), 1);  // its own
  EXPECT_FALSE(fs::exists(run->socket_folder() / "worker-0.sock"));
}

TEST_F(RunFolderTest, a_run_that_never_made_a_step_does_not_bind_the_folder) {
  std::ofstream(open()->paths().faults() / "kill") << "claimed";
  config_.batch.lanes = 8;
  const auto run = open();
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_FALSE(run->existed());
  EXPECT_TRUE(fs::is_empty(run->paths().faults()));
  EXPECT_EQ(load_config(dir_ / "config.toml")->batch.lanes, 8);
}

TEST_F(RunFolderTest, a_checkpoint_alone_binds_the_folder) {
  std::ofstream(open()->paths().checkpoints() / "x") << "weights";
  config_.batch.lanes = 8;
  EXPECT_THAT(refusal(), HasSubstr("batch.lanes"));
}

TEST_F(RunFolderTest, another_configuration_is_refused_with_its_differences) {
  std::ofstream(open()->paths().metrics()) << "a step";
  config_.batch.lanes = 8;
  config_.train.seed = 5;
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("invalid"), HasSubstr("batch.lanes: 4 in the folder, 8 now"),
                    HasSubstr("train.seed: 1 in the folder, 5 now"), HasSubstr("--start-anew")));
  EXPECT_EQ(load_config(dir_ / "config.toml")->batch.lanes, 4);
}

TEST_F(RunFolderTest, starting_anew_moves_the_old_run_aside_each_time) {
  std::string secret;
  {
    const auto run = open();
    secret = run->secret();
    std::ofstream(run->paths().metrics()) << "first";
    std::ofstream(run->paths().checkpoints() / "x") << "first";
  }
  config_.batch.lanes = 8;
  options_.start_anew = true;
  {
    const auto run = open();
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_FALSE(run->existed());
    EXPECT_NE(run->secret(), secret);
    EXPECT_FALSE(fs::exists(run->paths().metrics()));
    EXPECT_EQ(read_file(dir_ / "previous-1/metrics.jsonl").value(), "first");
    EXPECT_TRUE(fs::exists(dir_ / "previous-1/checkpoints/x"));
    std::ofstream(run->paths().metrics()) << "second";
  }
  ASSERT_TRUE(open());
  EXPECT_EQ(read_file(dir_ / "previous-2/metrics.jsonl").value(), "second");
  EXPECT_EQ(load_config(dir_ / "previous-1/config.toml")->batch.lanes, 4);
  EXPECT_FALSE(fs::exists(dir_ / "previous-1/lock"));
}

TEST_F(RunFolderTest, folders_of_something_else_are_left_alone) {
  fs::create_directories(dir_);
  std::ofstream(dir_ / "thesis.tex") << "x";
  EXPECT_THAT(refusal(), HasSubstr("not empty and not the folder of a run"));
  options_.start_anew = true;
  EXPECT_THAT(refusal(), HasSubstr("not empty and not the folder of a run"));
  EXPECT_FALSE(fs::exists(dir_ / "lock"));
  fs::remove_all(dir_);
  std::ofstream(dir_.string()) << "x";
  EXPECT_THAT(refusal(), HasSubstr(dir_.string()));
}

TEST_F(RunFolderTest, a_broken_copy_of_the_config_is_told) {
  std::ofstream(open()->paths().metrics()) << "a step";
  std::ofstream(dir_ / "config.toml") << "[batch\n";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("cannot be read"), HasSubstr("config.toml:1:"),
                               HasSubstr("--start-anew")));
}

TEST_F(RunFolderTest, a_run_killed_before_its_config_was_written_starts_new) {
  fs::create_directories(dir_);
  std::ofstream(dir_ / "lock") << "123\n";
  const auto run = open();
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_FALSE(run->existed());
}

TEST_F(RunFolderTest, too_little_space_is_told_before_the_run) {
  options_.bytes_free_min = ~0ULL;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("failed"), HasSubstr("free some space")));
}

TEST_F(RunFolderTest, a_folder_that_may_not_be_written_is_told) {
  EXPECT_FALSE(RunFolder::open("/proc/teson", config_, options_));
  EXPECT_FALSE(RunFolder::open("/dev/null/x", config_, options_));
}

TEST_F(RunFolderTest, a_secret_that_others_could_read_is_replaced) {
  std::string secret;
  {
    const auto run = open();
    secret = run->secret();
  }
  ::chmod((dir_ / "secret").c_str(), 0644);
  EXPECT_THAT(read_secret(dir_ / "secret").error().message, HasSubstr("expected mode 600"));
  {
    const auto run = open();
    EXPECT_NE(run->secret(), secret);
    EXPECT_EQ(mode(dir_ / "secret"), 0600u);
  }
  ASSERT_TRUE(write_file_atomic(dir_ / "secret", "short"));
  ::chmod((dir_ / "secret").c_str(), 0600);
  EXPECT_FALSE(read_secret(dir_ / "secret"));
  EXPECT_EQ(open()->secret().size(), 64u);
}

TEST_F(RunFolderTest, a_secret_that_is_given_becomes_the_runs) {
  options_.secret = "not one";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("64 hexadecimal digits"), HasSubstr("7 bytes")));
  EXPECT_FALSE(fs::exists(dir_));
  options_.secret = std::string(64, 'a');
  EXPECT_EQ(open()->secret(), options_.secret);
  EXPECT_EQ(mode(dir_ / "secret"), 0600u);
  options_.secret.clear();
  EXPECT_EQ(open()->secret(), std::string(64, 'a'));
  options_.secret = std::string(64, 'b');
  EXPECT_EQ(open()->secret(), options_.secret);
  EXPECT_EQ(read_secret(dir_ / "secret").value(), options_.secret);
}

TEST_F(RunFolderTest, only_stale_folders_with_our_name_are_removed) {
  const auto living = make_socket_folder(folder_.path());
  ASSERT_TRUE(living);
  fs::path dead;
  {
    auto made = make_socket_folder(folder_.path());
    dead = made->path;
  }
  const fs::path young = folder_.path() / "teson-abcdef",
                 foreign = folder_.path() / "teson-something";
  fs::create_directories(young);
  fs::create_directories(foreign);
  fs::create_directory_symlink(foreign, folder_.path() / "teson-symlnk");
  remove_stale_socket_folders(folder_.path());
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(living->path));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(foreign));
  // A cleaner of old files may have emptied it.
  fs::remove_all(living->sockets());
  fs::last_write_time(living->path, fs::file_time_type::clock::now() - std::chrono::hours(240));
  remove_stale_socket_folder(living->path);
  EXPECT_TRUE(fs::exists(living->path));
  EXPECT_FALSE(socket_base(std::string(60, 'x')));
}

TEST_F(RunFolderTest, a_removed_folder_of_sockets_is_made_again_and_nothing_else_taken_for_it) {
  auto made = make_socket_folder(folder_.path());
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_FALSE(restore_socket_folder(*made).value());
  for (const fs::path& removed : {made->path, made->sockets()}) {
    fs::remove_all(removed);
    EXPECT_TRUE(restore_socket_folder(*made).value());
    EXPECT_EQ(mode(made->path), 0700u);
    EXPECT_EQ(mode(made->sockets()), 0700u);
    remove_stale_socket_folder(made->path);
    EXPECT_TRUE(fs::exists(made->path));
  }
  const fs::path victim = folder_.path() / "victim";
  fs::create_directories(victim);
  fs::remove_all(made->path);
  fs::create_directory_symlink(victim, made->path);
  EXPECT_FALSE(restore_socket_folder(*made));
  EXPECT_TRUE(fs::is_empty(victim));
  fs::remove(made->path);
  fs::create_directories(made->path);
  ::chmod(made->path.c_str(), 0777);
  EXPECT_FALSE(restore_socket_folder(*made));
}

TEST_F(RunFolderTest, a_living_run_is_seen_without_its_lock_file) {
  const auto run = open();
  ASSERT_TRUE(run);
  EXPECT_TRUE(run->is_in_place());
  fs::remove(dir_ / "lock");
  EXPECT_THAT(refusal(), HasSubstr("in use by a living run"));
  fs::rename(dir_, folder_.path() / "elsewhere");
  EXPECT_FALSE(run->is_in_place());
  fs::create_directories(dir_);
  EXPECT_FALSE(run->is_in_place());
}

TEST_F(RunFolderTest, what_stands_in_the_file_of_sockets_cannot_harm_other_folders) {
  ASSERT_TRUE(open());
  const fs::path victim = folder_.path() / "victim";
  fs::create_directories(victim);
  std::ofstream(dir_ / "sockets") << victim.string();
  ASSERT_TRUE(open());
  EXPECT_TRUE(fs::exists(victim));
}

}  // namespace
}  // namespace teson::job
