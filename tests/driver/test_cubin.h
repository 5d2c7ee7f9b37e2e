// SPDX-License-Identifier: Apache-2.0
// A minimal cubin for tests: an ELF file with one entry that the driver room accepts.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace attnjit::fake {

/// Sections: null, .strtab, .symtab, .text. `sm` is 90, 100 or 103.
inline std::vector<std::uint8_t> make_cubin(const std::vector<std::string>& entries, int sm = 90) {
  std::string strings(1, '\0');
  std::vector<Elf64_Sym> symbols(1);
  for (const std::string& entry : entries) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<Elf64_Word>(strings.size());
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol.st_other = 0x10;  // STO_CUDA_ENTRY
    symbol.st_shndx = 3;
    symbols.push_back(symbol);
    strings += entry;
    strings.push_back('\0');
  }
  const std::string code(64, '\x42');
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_ABIVERSION] = 8;
  header.e_type = ET_EXEC;
  header.e_machine = 190;
  header.e_flags = static_cast<Elf64_Word>(sm) << 8;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 4;
  header.e_shoff = sizeof header;
  Elf64_Shdr sections[4]{};
  std::uint64_t at = sizeof header + sizeof sections;
  const std::uint64_t sizes[4] = {0, strings.size(), symbols.size() * sizeof(Elf64_Sym),
                                  code.size()};
  const Elf64_Word types[4] = {SHT_NULL, SHT_STRTAB, SHT_SYMTAB, SHT_PROGBITS};
  for (int i = 1; i < 4; ++i) {
    sections[i].sh_type = types[i];
    sections[i].sh_offset = at;
    sections[i].sh_size = sizes[i];
    at += sizes[i];
  }
  sections[2].sh_link = 1;
  sections[2].sh_entsize = sizeof(Elf64_Sym);
  std::vector<std::uint8_t> bytes(at);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + header.e_shoff, sections, sizeof sections);
  std::memcpy(bytes.data() + sections[1].sh_offset, strings.data(), sizes[1]);
  std::memcpy(bytes.data() + sections[2].sh_offset, symbols.data(), sizes[2]);
  std::memcpy(bytes.data() + sections[3].sh_offset, code.data(), sizes[3]);
  return bytes;
}

}  // namespace attnjit::fake
