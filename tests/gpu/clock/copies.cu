// SPDX-License-Identifier: Apache-2.0
// Bulk tensor copies: latency by box, rates of one SM and of all from L2 and HBM, stores.
#include <cuda.h>

#include <cstring>

#include "device.cuh"

namespace attnjit::clock_bench {
namespace {

constexpr int kRowBytes = 128;       // of a box: one swizzle pattern's width
constexpr i64 kRowStride = 4096;     // of a tensor [.., rows, 16 heads, 128]
constexpr i64 kRows = i64{1} << 20;  // 4 GiB
constexpr int kMostBytes = 192 * 1024;

/// A tensor of bf16 whose boxes are `box_rows` rows of 64 columns.
TensorMap make_map(void* memory, i64 stride, i64 rows, int box_rows) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                         &found),
        "cuTensorMapEncodeTiled");
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  CUtensorMap map{};
  const cuuint64_t sizes[3] = {64, static_cast<cuuint64_t>(rows), 1};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(stride),
                                 static_cast<cuuint64_t>(stride * rows)};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1}, steps[3] = {1, 1, 1};
  if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, memory, sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    std::fprintf(stderr, "cuTensorMapEncodeTiled failed\n");
    std::exit(1);
  }
  TensorMap result;
  static_assert(sizeof result == sizeof map);
  std::memcpy(&result, &map, sizeof map);
  return result;
}

/// `boxes` boxes are issued and waited for. Sample after sample they come from `step` rows further
/// on, and after `positions` of them from the first again.
__global__ void box_latency(u32* out, const __grid_constant__ TensorMap map, int rows, int boxes,
                            int step, int positions) {
  const u32 base = shared_base(), barrier = base + kMostBytes;
  if (threadIdx.x != 0) return;
  mbarrier_init(barrier, 1);
  fence_mbarrier_init();
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    const int row = sample % positions * step;
    mbarrier_arrive_expect_tx(barrier, boxes * rows * kRowBytes);
    const u32 begin = cycle();
#pragma unroll 1
    for (int box = 0; box < boxes; ++box)
      tma_load_3d(base + box * rows * kRowBytes, &map, barrier, 0, row + box * rows, 0, kEvictLast);
    const u32 issued = cycle();
    mbarrier_wait(barrier, sample & 1);
    const u32 end = cycle();
    out[sample] = end - begin;
    out[kSamples + sample] = issued - begin;
  }
}

/// Stores: until their source is read, and until they are written.
__global__ void box_store(u32* out, const __grid_constant__ TensorMap map, int rows, int boxes) {
  const u32 base = shared_base();
  if (threadIdx.x != 0) return;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    const u32 begin = cycle();
#pragma unroll 1
    for (int box = 0; box < boxes; ++box)
      tma_store_3d(&map, base + box * rows * kRowBytes, 0, (sample * boxes + box) * rows, 0);
    bulk_commit_group();
    bulk_wait_group_read();
    const u32 read = cycle();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    const u32 end = cycle();
    out[sample] = read - begin;
    out[kSamples + sample] = end - begin;
  }
}

/// Every CTA keeps `stages` boxes under way and loads `boxes` in all, from `apart` boxes after
/// those of the CTA before it, and from its first again after `period`. Out: cycles of the CTA.
__global__ void box_stream(u32* out, const __grid_constant__ TensorMap map, int rows, int stages,
                           int boxes, int apart, int period) {
  const u32 base = shared_base(), barriers = base + kMostBytes;
  if (threadIdx.x != 0) return;
  for (int stage = 0; stage < stages; ++stage) mbarrier_init(barriers + 8 * stage, 1);
  fence_mbarrier_init();
  const int bytes = rows * kRowBytes;
  const auto load = [&](int box, int stage) {
    mbarrier_arrive_expect_tx(barriers + 8 * stage, bytes);
    tma_load_3d(base + stage * bytes, &map, barriers + 8 * stage, 0,
                (static_cast<int>(blockIdx.x) * apart + box % period) * rows, 0, kEvictLast);
  };
  const u32 begin = cycle();
  for (int stage = 0; stage < stages; ++stage) load(stage, stage);
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    mbarrier_wait(barriers + 8 * stage, parity);
    if (box + stages < boxes) load(box + stages, stage);
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  out[blockIdx.x] = cycle() - begin;
}

struct Stream {
  int ctas, rows, stages, boxes, apart, period;
};

/// Bytes per nanosecond of the launch, and per cycle of the slowest CTA.
void measure_stream(Report& report, const std::string& name, const TensorMap& map,
                    const Stream& s) {
  static u32* const out = allocate<u32>(1 << 16);
  constexpr int kShared = kMostBytes + 2048;
  allow_shared(box_stream, kShared);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> rates, per_cycle;
  const double bytes = static_cast<double>(s.rows) * kRowBytes * s.boxes;
  for (int sample = 0; sample < 9; ++sample) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    box_stream<<<s.ctas, 32, kShared>>>(out, map, s.rows, s.stages, s.boxes, s.apart, s.period);
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "box_stream");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    std::vector<u32> cycles(s.ctas);
    check(cudaMemcpy(cycles.data(), out, sizeof(u32) * s.ctas, cudaMemcpyDeviceToHost), "memcpy");
    if (sample < 2) continue;
    rates.push_back(bytes * s.ctas / (ms * 1e6));
    u32 most = 0;
    for (const u32 c : cycles) most = c > most ? c : most;
    per_cycle.push_back(bytes / most);
  }
  report.add("copies." + name + ".rate", "GB/s", rates);
  report.add("copies." + name + ".per_sm", "bytes/cycle", per_cycle);
}

}  // namespace

void measure_copies(Report& report) {
  auto* const memory = allocate<unsigned char>(kRows * kRowStride);
  constexpr Shape kOne{1, 32, kMostBytes + 2048};
  for (const int rows : {8, 16, 32, 64, 128, 256}) {
    const TensorMap map = make_map(memory, kRowStride, kRows, rows);
    const std::string box = "box" + std::to_string(rows * kRowBytes);
    // NOTE: cudaMemset left the end of the 4 GiB in L2: what is read here is not there.
    const auto hbm = fields_of(2, kOne, box_latency, map, rows, 1, 16384, 1 << 20);
    const auto l2 = fields_of(2, kOne, box_latency, map, rows, 1, 1024, 2);
    report.add("copies." + box + ".l2.latency", "cycles", l2[0]);
    report.add("copies." + box + ".hbm.latency", "cycles", hbm[0]);
    report.add("copies." + box + ".issue", "cycles", l2[1]);
    const auto stores = fields_of(2, kOne, box_store, map, rows, 1);
    report.add("copies." + box + ".store.read", "cycles", stores[0]);
    report.add("copies." + box + ".store.written", "cycles", stores[1]);
  }
  const TensorMap map = make_map(memory, kRowStride, kRows, 64);
  const TensorMap dense = make_map(memory, kRowBytes, kRows * 32, 64);
  const TensorMap small = make_map(memory, kRowStride, kRows, 8);
  const TensorMap page = make_map(memory, kRowStride, kRows, 16);
  const auto measure_boxes = [&](const TensorMap& of, int rows, int boxes) {
    const auto l2 = fields_of(2, kOne, box_latency, of, rows, boxes, 1024, 2);
    const std::string name =
        "copies.box" + std::to_string(rows * kRowBytes) + ".boxes" + std::to_string(boxes);
    report.add(name + ".l2.latency", "cycles", l2[0]);
    report.add(name + ".issue", "cycles", l2[1]);
  };
  for (const int boxes : {2, 4, 8, 16}) measure_boxes(map, 64, boxes);
  for (const int boxes : {2, 4, 8, 16, 32}) measure_boxes(page, 16, boxes);
  measure_stream(report, "l2.sm1.box8192", map, {1, 64, 16, 2048, 0, 64});
  measure_stream(report, "l2.sm1.box2048", page, {1, 16, 64, 8192, 0, 64});
  measure_stream(report, "l2.sm1.box1024", small, {1, 8, 64, 8192, 0, 64});
  for (const int sms : {16, 66, 132}) {
    const std::string of = ".sm" + std::to_string(sms) + ".box8192";
    measure_stream(report, "l2.same" + of, map, {sms, 64, 16, 2048, 0, 512});
    measure_stream(report, "l2.own" + of, map, {sms, 64, 16, 2048, 16, 16});
  }
  measure_stream(report, "hbm.sm132.box8192", map, {132, 64, 16, 124, 124, 124});
  measure_stream(report, "hbm.dense.sm132.box8192", dense, {132, 64, 16, 3900, 3900, 3900});
  measure_stream(report, "hbm.dense.sm66.box8192", dense, {66, 64, 16, 3900, 3900, 3900});
  measure_stream(report, "hbm.dense.sm1.box8192", dense, {1, 64, 16, 3900, 0, 3900});
  check(cudaFree(memory), "cudaFree");
}

}  // namespace attnjit::clock_bench
