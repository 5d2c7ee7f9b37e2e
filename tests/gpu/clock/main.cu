// SPDX-License-Identifier: Apache-2.0
// attnjit_clock_bench [-o FILE] [GROUP...]: measures on a Hopper GPU what the clock's model of it
// is made of (docs/clock.md), as JSON.
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>

#include "device.cuh"

namespace {

using namespace attnjit::clock_bench;

constexpr std::pair<const char*, void (*)(Report&)> kGroups[] = {
    {"chip", measure_chip_clock},        {"launches", measure_launches},
    {"copies", measure_copies},          {"memory", measure_memory},
    {"arithmetic", measure_arithmetic},  {"barriers", measure_barriers},
    {"shared", measure_shared_memory},   {"products", measure_products},
    {"beside", measure_beside_products}, {"turns", measure_turns},
};

void add_facts(Report& report) {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  report.fact("device", device.name);
  report.fact("compute_capability",
              std::to_string(device.major) + "." + std::to_string(device.minor));
  report.fact("sms", std::to_string(device.multiProcessorCount));
  report.fact("l2_bytes", std::to_string(device.l2CacheSize));
  report.fact("cuda_driver", std::to_string(driver));
  report.fact("cuda_runtime", std::to_string(CUDART_VERSION));
  report.fact("date", date);
  if (device.major != 9) {
    std::cerr << "the kernels are for compute capability 9.0\n";
    std::exit(4);
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::string file;
  std::vector<std::string> wanted;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "-o" && i + 1 < count) {
      file = arguments[++i];
    } else {
      wanted.push_back(argument);
    }
  }
  Report report;
  add_facts(report);
  const auto write = [&] {
    if (!file.empty()) std::ofstream(file) << report.to_json();
  };
  for (const auto& [name, measure] : kGroups) {
    bool chosen = wanted.empty();
    for (const std::string& one : wanted) chosen = chosen || one == name;
    if (!chosen) continue;
    measure(report);
    write();  // what is known so far is kept if a later group fails
  }
  if (file.empty()) std::cout << report.to_json();
}
