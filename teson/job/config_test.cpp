#include "teson/job/config.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "teson/base/file.h"
#include "teson/job/config_keys.h"
#include "teson/job/test_folder.h"
#include "teson/job/toml_guard.h"

namespace teson::job {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string error_of(const Result<Config>& result) {
  if (result) return "no error";
  EXPECT_EQ(result.error().kind, ErrorKind::invalid) << result.error().describe();
  return result.error().message;
}

Result<Config> parse(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "job.toml", overrides);
}

TEST(Config, an_empty_file_is_the_defaults) {
  const auto config = parse("");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->batch.lanes, 4);
  EXPECT_EQ(config->train.mode, Mode::exact);
  EXPECT_EQ(config->data.vocabulary, 512);  // the preset's
  EXPECT_TRUE(validate_config(Config{}));
}

TEST(Config, values_of_every_kind_are_read) {
  const auto config = parse(
      "[data]\ncorpus = ['a', \"b\\n\"]\nvalidation_fraction = 0.25\n"
      "[train]\nseed = 9223372036854775807\nmode = 'elastic'\ncompute = 'bf16'\n"
      "[model]\nlayers = 3\ntied_head = false\nrope_theta = 100\n"
      "[optimizer]\nschedule = 'wsd'\ndecay_steps = 7\nlearning_rate = 1\n"
      "[cluster]\nfault_tolerance = false");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->data.corpus, (std::vector<std::string>{"a", "b\n"}));
  EXPECT_EQ(config->data.validation_fraction, 0.25);
  EXPECT_EQ(config->train.seed, 9223372036854775807ULL);
  EXPECT_EQ(config->train.mode, Mode::elastic);
  EXPECT_EQ(config->train.compute, Compute::bf16);
  EXPECT_EQ(config->model.layers, 3);
  EXPECT_EQ(config->model.tied_head, false);
  EXPECT_EQ(config->model.rope_theta, 100.0);
  EXPECT_EQ(config->model.heads, std::nullopt);
  EXPECT_EQ(config->optimizer.schedule, ScheduleKind::wsd);
  EXPECT_EQ(config->optimizer.decay_steps, 7);
  EXPECT_FALSE(config->cluster.fault_tolerance);
  EXPECT_EQ(model_shape(*config)->layers, 3);
}

TEST(Config, an_unknown_key_is_refused_with_its_place_and_the_nearest_one) {
  EXPECT_EQ(error_of(parse("[batch]\nlanes = 4\n  lane = 3\n")),
            "job.toml:3:3: unknown key batch.lane; the nearest known key is batch.lanes");
  EXPECT_THAT(error_of(parse("lanes = 4")),
              HasSubstr("job.toml:1:1: unknown key lanes; the nearest known key is batch.lanes"));
  EXPECT_THAT(error_of(parse("[optimiser]\nbeta1 = 0.5")),
              HasSubstr("unknown table [optimiser]; the nearest known table is [optimizer]"));
  EXPECT_THAT(error_of(parse("[train]\nlearning_rate = 0.5")),
              HasSubstr("nearest known key is optimizer.learning_rate"));
  EXPECT_THAT(error_of(parse("[train]\nxyzzyplugh = 0.5")),
              HasSubstr("`teson config --explain` lists all keys"));
  EXPECT_THAT(error_of(parse("batch = 3")),
              HasSubstr("batch: expected a table [batch], found a value"));
  EXPECT_THAT(error_of(parse("[[batch]]\nlanes = 1")), HasSubstr("expected a table"));
}

TEST(Config, a_wrong_type_says_what_was_expected_and_found) {
  EXPECT_EQ(error_of(parse("[batch]\nlanes = \"four\"")),
            "job.toml:2:9: batch.lanes: expected a whole number from 1 to 65536, found the text "
            "\"four\"");
  EXPECT_THAT(error_of(parse("[batch]\nlanes = 4.0")), HasSubstr("found the number 4.0"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = true")), HasSubstr("found true"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = {a=1}")), HasSubstr("found a table"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = 2026-01-01")), HasSubstr("found a date or time"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = [1]")), HasSubstr("found a list"));
  EXPECT_THAT(error_of(parse("[data]\ncorpus = [1]")), HasSubstr("something else than text"));
  EXPECT_THAT(error_of(parse("[data]\ncorpus = []")), HasSubstr("found an empty list"));
  EXPECT_THAT(error_of(parse("[cluster]\nfault_tolerance = 1")),
              HasSubstr("expected true or false, found 1"));
  EXPECT_THAT(error_of(parse("[train]\nmode = 'exakt'")), HasSubstr("(did you mean \"exact\"?)"));
}

TEST(Config, numbers_outside_their_limits_are_refused) {
  EXPECT_THAT(error_of(parse("[batch]\nlanes = 0")), HasSubstr("from 1 to 65536, found 0"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = 4294967297")), HasSubstr("found 4294967297"));
  EXPECT_THAT(error_of(parse("[train]\nseed = -1")), HasSubstr("found -1"));
  EXPECT_THAT(error_of(parse("[train]\nseed = 9223372036854775808")), HasSubstr("job.toml:2:"));
  EXPECT_THAT(error_of(parse("[optimizer]\nbeta1 = 1")),
              HasSubstr("expected a number from 0 to below 1, found the number 1.0"));
  EXPECT_THAT(error_of(parse("[optimizer]\nlearning_rate = nan")),
              HasSubstr("found the number nan"));
  EXPECT_THAT(error_of(parse("[optimizer]\nlearning_rate = inf")),
              HasSubstr("found the number inf"));
  EXPECT_THAT(error_of(parse("[optimizer]\nlearning_rate = 0")),
              HasSubstr("expected a number above 0"));
  EXPECT_THAT(error_of(parse("[run]\nname = \"a\\u0000b\"")), HasSubstr("run.name: expected text"));
  EXPECT_THAT(error_of(parse("[run]\nname = \"" + std::string(5000, 'x') + "\"")),
              AllOf(HasSubstr("run.name"), HasSubstr("…")));
}

TEST(Config, all_errors_of_a_file_are_told_at_once_in_their_order) {
  const std::string text =
      error_of(parse("[train]\nstep = 1\n[batch]\nlanes = 'x'\nsequences = 0\n"));
  EXPECT_THAT(text, testing::MatchesRegex("job.toml:2:1: .*\njob.toml:4:9: .*\njob.toml:5:13: .*"));
  std::string many = "[batch]\n";
  for (int i = 0; i < 30; ++i)
    many += "k" + std::to_string(i) + " = 1\n";
  EXPECT_THAT(error_of(parse(many)), HasSubstr("and 20 more"));
}

TEST(Config, broken_toml_names_the_place) {
  EXPECT_THAT(error_of(parse("[batch]\nlanes = 4\nlanes = 5\n")),
              AllOf(HasSubstr("job.toml:3:"), HasSubstr("lanes")));
  EXPECT_THAT(error_of(parse("[batch\nlanes = 4")), HasSubstr("job.toml:1:"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = ")), HasSubstr("job.toml:2:"));
  EXPECT_THAT(error_of(parse(std::string_view("\x7f"
                                              "ELF\x02\0\0\0",
                                              8))),
              HasSubstr("found a binary one"));
  EXPECT_THAT(error_of(parse("\xff\xfe\xfd")), HasSubstr("job.toml:1:"));
  EXPECT_THAT(error_of(parse(std::string(100'000, '['))), HasSubstr("job.toml:1:"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = " + std::string(100'000, '['))),
              HasSubstr("job.toml:2:"));
}

TEST(Config, keys_nested_without_end_are_refused_before_they_are_parsed) {
  std::string deep = "a";
  for (int i = 0; i < 500'000; ++i)
    deep += ".a";
  EXPECT_THAT(error_of(parse(deep + " = 1")), HasSubstr("dots in keys"));
  EXPECT_THAT(error_of(parse("[" + deep + "]")), HasSubstr("dots in keys"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = {" + deep + " = 1}")), HasSubstr("dots in keys"));
  EXPECT_THAT(error_of(parse("", {"batch.lanes={" + deep + " = 1}"})),
              HasSubstr("batch.lanes: expected"));
  const std::string dots(2000, '.');
  EXPECT_TRUE(parse("[train]\ngenerate_prompt = \"" + dots + "\"  # " + dots));
}

TEST(TomlGuard, counts_dots_outside_of_strings_and_comments) {
  EXPECT_EQ(count_dots("a.b = 1.5 # ...\n\"x.y\".z = 'a.b'"), 3u);
  EXPECT_EQ(count_dots("a = \"\"\"x.\\\"\"\".\n.\"\"\"\"\"\nb.c = '''.'''''\nd.e = 1"), 2u);
  EXPECT_EQ(count_dots("a = \"..\\\"..\"\nb.c = ''\nd.e = \"\""), 2u);
  EXPECT_EQ(count_dots("a = 'x\nb.c = 1"), 1u);
  EXPECT_EQ(count_dots("\"\\"), 0u);
}

TEST(Config, rules_between_keys_blame_a_key_at_its_place) {
  EXPECT_EQ(error_of(parse("[batch]\nlanes = 2\n[cluster]\nreplicas = 3\n")),
            "job.toml:2:9: batch.lanes: expected at least one lane a replica, found 2 lanes for "
            "cluster.replicas = 3");
  EXPECT_THAT(error_of(parse("[cluster]\nshards = 2")), HasSubstr("is not available yet"));
  EXPECT_THAT(error_of(parse("[cluster]\nmin_replicas = 3")),
              HasSubstr("expected at most cluster.replicas = 2, found 3"));
  EXPECT_THAT(error_of(parse("[optimizer]\nwarmup_steps = 101")),
              HasSubstr("within train.steps = 100, found 101 + 0"));
  EXPECT_THAT(error_of(parse("[optimizer]\nwarmup_steps = 60\ndecay_steps = 60")),
              HasSubstr("found 60 + 60"));
  EXPECT_THAT(error_of(parse("[data]\nvocabulary = 256")), HasSubstr("expected at least 257"));
  EXPECT_THAT(error_of(parse("[data]\nvalidation_fraction = 0")),
              HasSubstr("train.evaluate_batches = 0"));
  EXPECT_TRUE(parse("[data]\nvalidation_fraction = 0\n[train]\nevaluate_batches = 0"));
  EXPECT_THAT(error_of(parse("[data]\ncorpus = ['a', 'a']")), HasSubstr("occurs twice"));
  EXPECT_THAT(error_of(parse("[data]\ncorpus = 'builtin:huge'")),
              HasSubstr("expected builtin:tiny"));
  EXPECT_THAT(error_of(parse("[data]\ncorpus = ['builtin:tiny', 'x']")), HasSubstr("found both"));
  EXPECT_THAT(error_of(parse("[model]\nkv_heads = 3")), HasSubstr("kv_heads"));
  EXPECT_THAT(error_of(parse("[model]\npreset = 'tinny'")), HasSubstr("did you mean \"tiny\"?"));
  EXPECT_THAT(error_of(parse("[cluster]\nlighthouse = 'somewhere'")),
              HasSubstr("job.toml:2:14: cluster.lighthouse: "));
  EXPECT_TRUE(parse("[cluster]\nlighthouse = 'tcp:127.0.0.1:4000'"));
  EXPECT_THAT(error_of(parse("[run]\nname = 'a/b'")), HasSubstr("without '/'"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes = 65536\nmicrobatches = 65536\nsequences = "
                             "65536\nsequence_length = 65536\n")),
              HasSubstr("can be counted"));
}

TEST(Config, a_rule_that_an_override_breaks_names_the_override) {
  const std::string file = "[batch]\nlanes = 4\n[model]\nheads = 4\nkv_heads = 4\n";
  EXPECT_EQ(error_of(parse(file, {"cluster.replicas=8"})),
            "--set cluster.replicas=8: batch.lanes: expected at least one lane a replica, found 4 "
            "lanes for cluster.replicas = 8");
  EXPECT_EQ(error_of(parse("[cluster]\nreplicas = 8\n")),
            "job.toml:2:12: batch.lanes: expected at least one lane a replica, found 4 lanes for "
            "cluster.replicas = 8");
  EXPECT_EQ(
      error_of(parse("[model]\nlayers = 2\nhidden = 98\n")),
      "job.toml:3:10: model.hidden: model.heads is 4; expected a divisor of model.hidden, 98");
  EXPECT_EQ(error_of(parse(file, {"model.heads=5"})),
            "--set model.heads=5: model.heads is 5; expected a divisor of model.hidden, 96");
  EXPECT_EQ(error_of(parse(file, {"model.heads=8", "model.heads=5"})),
            "--set model.heads=5: model.heads is 5; expected a divisor of model.hidden, 96");
}

TEST(Config, overrides_replace_the_file_and_text_needs_no_quotes) {
  const auto config = parse("[train]\nsteps = 5\n",
                            {"train.steps=7", "run.name=my run", "run.dir='q'", "data.corpus=a/b",
                             "train.seed=0x10", "optimizer.learning_rate=1e-2", "train.steps=8",
                             "cluster.fault_tolerance=false", "train.generate_prompt=a=b"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->train.steps, 8);
  EXPECT_EQ(config->run.name, "my run");
  EXPECT_EQ(config->run.dir, "q");
  EXPECT_EQ(config->data.corpus, std::vector<std::string>{"a/b"});
  EXPECT_EQ(config->train.seed, 16u);
  EXPECT_EQ(config->optimizer.learning_rate, 0.01);
  EXPECT_FALSE(config->cluster.fault_tolerance);
  EXPECT_EQ(config->train.generate_prompt, "a=b");
  EXPECT_EQ(parse("", {"data.corpus=['x', 'y']"})->data.corpus.size(), 2u);
}

TEST(Config, wrong_overrides_are_refused) {
  EXPECT_THAT(
      error_of(parse("", {"train.stepz=7"})),
      HasSubstr(
          "--set train.stepz=7: unknown key train.stepz; the nearest known key is train.steps"));
  EXPECT_THAT(error_of(parse("", {"train.steps"})), HasSubstr("expected key=value"));
  EXPECT_THAT(error_of(parse("", {"=1"})), HasSubstr("expected key=value"));
  EXPECT_THAT(error_of(parse("", {"train.steps="})), HasSubstr("found the text \"\""));
  EXPECT_THAT(error_of(parse("", {"run.dir=\xff"})), HasSubstr("bytes of UTF-8"));
  EXPECT_THAT(error_of(parse("", {"train.steps=ten"})), HasSubstr("found the text \"ten\""));
  EXPECT_EQ(error_of(parse("", {"train.seed=18446744073709551615"})),
            "--set train.seed=18446744073709551615: train.seed: expected a whole number from 0 to "
            "9223372036854775807, found 18446744073709551615, which is out of range");
  EXPECT_EQ(error_of(parse("", {"data.corpus="})),
            "--set data.corpus=: data.corpus: expected a list of 1 to 4096 texts, found an empty "
            "text in it");
  EXPECT_THAT(error_of(parse("", {"train.steps=1\n[batch]\nlanes=8"})),
              HasSubstr("train.steps: expected a whole number"));
  EXPECT_THAT(error_of(parse("[batch]\nlanes='a'", {"train.steps=x"})),
              AllOf(HasSubstr("job.toml:2:7"), HasSubstr("--set train.steps=x")));
}

TEST(Config, files_that_are_no_config_are_refused_quickly) {
  const TestFolder folder;
  EXPECT_THAT(error_of(load_config(folder.path())),
              HasSubstr("expected a TOML file, found a folder"));
  const auto missing = load_config(folder.path() / "none.toml");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("none.toml"), HasSubstr("No such file")));
  const auto big = folder.path() / "big.toml";
  std::ofstream(big).close();
  std::filesystem::resize_file(big, 100 << 20);
  EXPECT_THAT(error_of(load_config(big)), AllOf(HasSubstr("big.toml"), HasSubstr("1048576")));
  EXPECT_THAT(error_of(load_config("/dev/zero")), HasSubstr("found a device"));
  std::ofstream(folder.path() / "empty.toml").close();
  EXPECT_TRUE(load_config(folder.path() / "empty.toml"));
  EXPECT_EQ(load_config({}, {"batch.lanes=64"})->batch.lanes, 64);
}

TEST(Config, the_configs_of_the_project_are_valid) {
  const std::filesystem::path source = TESON_SOURCE_DIR;
  for (const auto& entry : std::filesystem::directory_iterator(source / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    const auto config = load_config(entry.path());
    EXPECT_TRUE(config) << config.error().message;
  }
  const auto tiny = load_config(source / "configs/tiny.toml");
  EXPECT_EQ(tiny->train.steps, 100);
  EXPECT_EQ(tokens_per_step(*tiny), 1024);
  EXPECT_EQ(samples_per_step(*tiny), 16);
}

TEST(Config, every_key_is_explained_and_the_page_in_docs_is_current) {
  const std::string all = explain_config().value();
  for (const ConfigKey& key : config_keys()) {
    EXPECT_THAT(all, HasSubstr("  " + key.name + "  (default: "));
    EXPECT_EQ(key.explanation.back(), '.') << key.name;
    EXPECT_TRUE(check_value(key, key.read(Config{}))) << key.name;
    const bool table_known =
        std::any_of(config_tables().begin(), config_tables().end(),
                    [&](const ConfigTable& table) { return table.name == key.table(); });
    EXPECT_TRUE(table_known) << key.name;
  }
  EXPECT_THAT(explain_config("batch").value(),
              AllOf(HasSubstr("batch.lanes"), Not(HasSubstr("train."))));
  EXPECT_THAT(explain_config("batch.lanes").value(),
              AllOf(HasSubstr("batch.lanes"), Not(HasSubstr("batch.microbatches"))));
  EXPECT_THAT(explain_config("batch.lanes").value(), HasSubstr("Identity: a run goes on only"));
  EXPECT_THAT(explain_config("cluster.replicas").value(), HasSubstr("May change when"));
  EXPECT_THAT(explain_config("train.steps").value(), HasSubstr("unless it moves the learning"));
  EXPECT_THAT(explain_config("batch.lane").error().message,
              HasSubstr("the nearest is batch.lanes"));
  const std::string page =
      read_file(std::filesystem::path(TESON_SOURCE_DIR) / "docs/configuration.md").value();
  EXPECT_TRUE(page == configuration_page()) << "write it anew from configuration_page()";
}

TEST(Config, differences_name_what_makes_another_run) {
  const Config base = parse("").value();
  const auto differs = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> keys;
    for (const auto& each : config_difference(base, parse("", overrides).value()))
      keys.push_back(each.key);
    return keys;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(differs({}), Keys{});
  EXPECT_EQ(differs({"cluster.replicas=4", "cluster.min_replicas=2", "checkpoint.every=3",
                     "run.dir=x", "run.name=y", "data.prepared=z", "train.evaluate_every=2",
                     "cluster.heartbeat_ms=50"}),
            Keys{});
  EXPECT_EQ(differs({"batch.lanes=8", "train.seed=2"}), (Keys{"batch.lanes", "train.seed"}));
  EXPECT_EQ(differs({"model.layers=3"}), Keys{"model.layers"});
  EXPECT_EQ(differs({"data.vocabulary=512"}), Keys{});  // the preset's number, written out
  EXPECT_EQ(differs({"train.mode=elastic", "train.threads=2", "train.compute=bf16"}),
            (Keys{"train.mode", "train.threads", "train.compute"}));
  const auto one = config_difference(base, parse("", {"optimizer.learning_rate=0.5"}).value());
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].left, "0.001");
  EXPECT_EQ(one[0].right, "0.5");
  EXPECT_EQ(config_difference(Config{}, base).size(), 0u);
}

TEST(Config, a_run_may_be_extended_if_its_learning_rate_does_not_depend_on_the_end) {
  const auto extended = [](std::vector<std::string> overrides) {
    const Config before = parse("", overrides).value();
    overrides.push_back("train.steps=200");
    return config_difference(before, parse("", overrides).value()).empty();
  };
  EXPECT_FALSE(extended({}));
  EXPECT_TRUE(extended({"optimizer.decay_steps=50"}));
  EXPECT_TRUE(extended({"optimizer.schedule=wsd"}));
  EXPECT_FALSE(extended({"optimizer.schedule=wsd", "optimizer.decay_steps=50"}));
}

TEST(Config, the_plan_hash_follows_what_workers_must_agree_on) {
  const auto hash = [](const std::vector<std::string>& overrides) {
    return plan_hash(parse("", overrides).value());
  };
  const std::uint64_t base = hash({});
  EXPECT_EQ(hash({"cluster.replicas=4", "run.name=other", "checkpoint.keep=7"}), base);
  for (const char* each :
       {"train.steps=99", "train.seed=2", "batch.lanes=8", "optimizer.beta1=0.8", "train.threads=2",
        "model.layers=3", "checkpoint.every=5", "train.nan_limit=3"}) {
    EXPECT_NE(hash({each}), base) << each;
  }
  EXPECT_EQ(plan_hash(Config{}), base);
}

TEST(Config, folders_have_defaults_below_the_run) {
  Config config;
  config.run.name = "x";
  EXPECT_EQ(run_dir(config), "runs/x");
  EXPECT_EQ(checkpoint_dir(config), "runs/x/checkpoints");
  EXPECT_EQ(prepared_dir(config), "runs/x/data");
  config.run.dir = "/a";
  config.data.prepared = "p";
  config.checkpoint.dir = "/c";
  EXPECT_EQ(run_dir(config), "/a");
  EXPECT_EQ(checkpoint_dir(config), "/c");
  EXPECT_EQ(prepared_dir(config), "p");
}

TEST(Config, a_config_filled_by_hand_is_checked_too) {
  Config config;
  config.batch.lanes = 0;
  config.optimizer.beta2 = 2;
  const auto checked = validate_config(config);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message,
              AllOf(HasSubstr("batch.lanes: expected"), HasSubstr("optimizer.beta2: expected")));
  config = {};
  config.cluster.shards = 2;
  EXPECT_THAT(validate_config(config).error().message, HasSubstr("cluster.shards"));
}

}  // namespace
}  // namespace teson::job
