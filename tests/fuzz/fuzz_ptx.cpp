// libFuzzer target: any bytes as PTX give a module or an error, never a crash or a hang.
#include <cstddef>
#include <cstdint>
#include <string>

#include "emulator/ptx_parser.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)attnjit::emulator::parse_ptx(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
