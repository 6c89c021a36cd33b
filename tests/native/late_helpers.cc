// XLA's threads, played by threads that come late: after some calls of sums are over and their buffers are gone.
// Compiled with a sanitizer, which ends the program at the first byte that is touched wrongly. Prints "equal" if every
// call gave the bits of a call without helpers.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "sums.cc"

struct Task {
  XLA_FFI_Task* run;
  void* data;
  int microseconds;
};

static int64_t threads_offered = 4;
static int running = 0;

static void* late(void* given) {
  Task* task = (Task*)given;
  timespec pause = {0, task->microseconds * 1000L};
  nanosleep(&pause, nullptr);
  task->run(task->data);
  delete task;
  __atomic_sub_fetch(&running, 1, __ATOMIC_ACQ_REL);
  return nullptr;
}

static XLA_FFI_Error* schedule(XLA_FFI_ThreadPool_Schedule_Args* args) {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  __atomic_add_fetch(&running, 1, __ATOMIC_ACQ_REL);
  pthread_t thread;
  pthread_create(&thread, nullptr, late, new Task{args->task, args->data, (int)(state >> 16) % 300});
  pthread_detach(thread);
  return nullptr;
}

static XLA_FFI_Error* count(XLA_FFI_ThreadPool_NumThreads_Args* args) {
  *args->num_threads = threads_offered;
  return nullptr;
}

constexpr int64_t kBlocks = 40, kSize = 150, kFeatures = 9, kClasses = 12, kClients = 7;

static XLA_FFI_Buffer buffer(XLA_FFI_DataType kind, void* data, int64_t rank, int64_t* dims) {
  return {XLA_FFI_Buffer_STRUCT_SIZE, nullptr, kind, data, rank, dims};
}

// A call on buffers of its own, which are gone when it returns.
static void call(float* to) {
  int64_t n = kBlocks * kSize, d = (kFeatures + 1) * kClasses;
  int64_t x_dims[] = {kBlocks, kSize, kFeatures}, theta_dims[] = {1, kClients, kFeatures + 1, kClasses};
  int64_t out_dims[] = {1, kClients, kFeatures + 1, kClasses};
  float *x = new float[n * kFeatures], *weight = new float[n], *theta = new float[kClients * d],
        *out = new float[kClients * d], *rest = new float[kClients * d], clip = 1;
  int32_t *y = new int32_t[n], *owner = new int32_t[kBlocks], reach = 0;
  for (int64_t i = 0; i < n * kFeatures; i++) x[i] = (i * 37 % 101) / 50.0f - 1;
  for (int64_t i = 0; i < n; i++) weight[i] = 1, y[i] = i % kClasses;
  for (int64_t i = 0; i < kClients * d; i++) theta[i] = (i * 53 % 97) / 97.0f;
  for (int64_t i = 0; i < kBlocks; i++) owner[i] = i * kClients / kBlocks;
  XLA_FFI_Buffer buffers[] = {
      buffer(XLA_FFI_DataType_F32, x, 3, x_dims),      buffer(XLA_FFI_DataType_S32, y, 2, x_dims),
      buffer(XLA_FFI_DataType_F32, weight, 2, x_dims), buffer(XLA_FFI_DataType_S32, owner, 1, x_dims),
      buffer(XLA_FFI_DataType_F32, theta, 4, theta_dims), buffer(XLA_FFI_DataType_F32, &clip, 0, nullptr),
      buffer(XLA_FFI_DataType_F32, out, 4, out_dims), buffer(XLA_FFI_DataType_F32, rest, 4, out_dims),
      buffer(XLA_FFI_DataType_S32, &reach, 0, nullptr)};
  void *args[7], *rets[] = {&buffers[6], &buffers[7]};
  for (int i = 0; i < 7; i++) args[i] = &buffers[i < 6 ? i : 8];
  XLA_FFI_Api api = {};
  api.XLA_FFI_ThreadPool_Schedule = schedule, api.XLA_FFI_ThreadPool_NumThreads = count;
  XLA_FFI_CallFrame frame = {};
  frame.api = &api, frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args.size = 7, frame.args.args = args, frame.rets.size = 2, frame.rets.rets = rets;
  if (fedsofim_sums(&frame)) printf("refused\n");
  memcpy(to, out, 4 * kClients * d);
  delete[] x, delete[] weight, delete[] theta, delete[] out, delete[] rest, delete[] y, delete[] owner;
}

int main() {
  constexpr int64_t numbers = kClients * (kFeatures + 1) * kClasses;
  static float alone[numbers], helped[numbers];
  threads_offered = 1;
  call(alone);
  threads_offered = 4;
  bool equal = true;
  for (int i = 0; i < 200; i++) {
    call(helped);
    equal &= memcmp(alone, helped, sizeof alone) == 0;
  }
  while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) sched_yield();
  printf(equal ? "equal\n" : "different\n");
}
